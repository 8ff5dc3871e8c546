"""Whether a candidate computes the right answer, on which inputs, and within which tolerance.

Face: check, runtime_audit, tolerance.
"""

"""Whether a candidate computes the right answer, on which inputs, and within which tolerance.

Face: check, held_out_shapes, runtime_audit, tolerance.
"""

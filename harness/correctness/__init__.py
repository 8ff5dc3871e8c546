"""Whether a candidate computes the right answer, on which inputs, and within which tolerance.

Face: check (Check), tolerance (Budget), runtime_audit, statefulness, held_out_shapes.
"""

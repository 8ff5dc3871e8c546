"""The space of a search: knobs, constraints between them, and `triton.autotune` lists.

Face: constraints, knobs, space.
"""

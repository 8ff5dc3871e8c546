"""The space of a search: knobs, constraints between them, and `triton.autotune` lists.

Face: space (Space), knobs, constraints, triton_autotune.
"""

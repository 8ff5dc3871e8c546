"""Transformations of Triton sources, found in the tree that Python's own parser makes.

Face: invariant_loads, launch_knobs, loops, parsed_triton, persistent_grid, rows_per_program,
scalars, unmasked_loops.
"""

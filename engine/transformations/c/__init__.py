"""Transformations of C sources, found in the syntax tree that tree-sitter makes.

Face: accumulators, compiler_hints, entry_only, invariants, loop_order, parsed_c, unroll_and_jam.
"""

"""Transformations of C sources, found in the syntax tree that tree-sitter makes.

Face: c_transformations.
"""

"""Transformations of Triton sources, found in the tree that Python's own parser makes.

Face: triton_transformations.
"""

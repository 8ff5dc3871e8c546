"""Kernels that kopt writes for calls over the rows of one tensor, each value read once.

Face: row_entry, row_region.
"""

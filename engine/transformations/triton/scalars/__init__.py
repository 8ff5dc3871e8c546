"""Separates scalar work from work on the lanes of a block.

Face: narrow_offsets, reciprocals.
"""

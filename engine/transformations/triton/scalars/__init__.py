"""Work on one number taken apart from work on the lanes of a block.

Face: narrow_offsets, reciprocals.
"""

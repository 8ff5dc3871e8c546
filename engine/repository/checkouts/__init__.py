"""What a checkout has besides its commit's own files: submodules, LFS contents and built files.

Face: checkout, lfs, submodules.
"""

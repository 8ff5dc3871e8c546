"""What a checkout has beside its commit's own files: submodules, LFS contents and built files.

Face: checkout, lfs, submodules.
"""

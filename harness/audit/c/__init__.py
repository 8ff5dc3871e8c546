"""Audits C and CUDA sources, read as tokens and never compiled.

Face: scan_c, and the single checks beside it.
"""

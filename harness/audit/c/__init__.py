"""Audits C and CUDA sources, read as tokens and never compiled.

Face: memory, scan_c, source.
"""

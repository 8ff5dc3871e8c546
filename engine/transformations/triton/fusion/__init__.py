"""Two launches of Triton kernels as one: which may be joined, and the joined kernel's source.

Face: fused_launches.
"""

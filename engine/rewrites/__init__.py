"""Rewrites a PyTorch module's forward pass with kernels: its graph, what matches, the candidate.

Face: module_rewrite.
"""

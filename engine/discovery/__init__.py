"""Infers from a project what a person would otherwise have to specify.

project/ reads sources without running anything, classes/ measures the benchmark to find config
classes, new/ drafts the task and manifest of `kopt new`. A new kind of kernel (Triton, PyTorch,
CUDA) gets a reader in project/ and a draft in new/.
"""

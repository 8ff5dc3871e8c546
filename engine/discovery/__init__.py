"""What kopt infers about a project, so that a person has to say less.

project/ reads sources without running anything, classes/ measures the benchmark to find config
classes, new/ drafts the task and manifest of `kopt new`. A new kind of kernel (Triton, PyTorch,
CUDA) gets a reader in project/ and a draft in new/.
"""

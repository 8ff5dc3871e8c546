"""Completes Triton's CPU interpreter, so that kernels for a GPU are checked without one."""

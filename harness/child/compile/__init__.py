"""Compiles Triton kernels ahead of time and reads the generated assembly."""

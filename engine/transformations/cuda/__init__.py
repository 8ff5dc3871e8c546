"""Transformations of the device code in CUDA and HIP sources; most of them are those of C.

Face: device_code, needed_kernels.
"""

"""Builds kernels, compiles them ahead of time, and manages compiler caches.

Face: kernel (Kernel, make, place_on), precompile (Ahead), triton_aot, compiler_cache.
"""

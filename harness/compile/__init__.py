"""Builds kernels, compiles them ahead of time, and manages compiler caches.

Face: c_compiler, compiler_cache, kernel, kernel_resources, precompile, timed_loop, triton_aot.
"""

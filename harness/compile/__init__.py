"""Builds kernels, compiles them ahead of time, and manages compiler caches.

Face: c_compiler, compiler_cache, kernel, kernel_resources, place, precompile, stream_usage,
timed_loop, triton_aot.
"""

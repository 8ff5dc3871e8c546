"""Reads a project without running it: kernel source, benchmark, columns of its result table.

Face: benchmark, columns, cpp_as_c, device_sources, file_changes, kernel_source, native_benchmark,
pointer_roles, sources.
"""

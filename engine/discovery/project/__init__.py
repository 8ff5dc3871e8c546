"""Reads a project without running it: kernel source, benchmark, columns of its result table.

Face: benchmark, columns, device_sources, file_changes, kernel_source, native_benchmark, sources.
"""

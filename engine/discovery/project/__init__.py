"""Reads a project: its kernel source, its benchmark, the columns of its result table.

Face: benchmark, columns, kernel_source, metric_columns, sources.
"""

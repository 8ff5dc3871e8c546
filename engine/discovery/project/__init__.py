"""Reads a project: its kernel source, its benchmark, the columns of its result table.

Face: sources, benchmark, kernel_source, columns, metric_columns.
"""

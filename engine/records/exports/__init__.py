"""Writes what a campaign has kept in the form of a benchmark suite or of a tuning table.

Face: bench_export, fast_p, kept_result, tuning_export.
"""

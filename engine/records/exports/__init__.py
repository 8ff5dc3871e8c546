"""Writes a campaign's kept result in the format of a benchmark suite or of a tuning table.

Face: bench_export, fast_p, kept_result, tuning_export.
"""

"""Writes a campaign's result in the form of a benchmark suite, so that it can be submitted.

Face: bench_export, fast_p, kept_result.
"""

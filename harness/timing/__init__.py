"""Paired timing and its statistics: incumbent and candidate alternate, block by block.

Face: paired_timing (Pairs), plan (Plan), stats (Estimate), outcome.
"""

"""Paired timing and its statistics: incumbent and candidate alternate, block by block.

Face: input_mutation, outcome, paired_blocks, paired_timing, plan, quick_timing, stats.
"""

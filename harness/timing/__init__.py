"""Paired timing and its statistics: incumbent and candidate alternate, block by block.

Face: outcome, paired_blocks, paired_timing, plan, stats, timed_block, timed_slots.
"""

"""Whole benchmark runs: working copies, alternation, reading the CSV, when to stop.

Face: alternating_runs (Duel), run_pairs (Series), result_table, workdir.
"""

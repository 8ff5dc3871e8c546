"""Whole benchmark runs: working copies, alternation, reading the CSV, when to stop.

Face: clean_runs, command_session, result_table, row_keys, run_pairs, stopping_rule, workdir.
"""

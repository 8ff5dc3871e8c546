"""The verdict on a benchmark target: build, test, run in alternation, confirm, summarise.

Face: benchmark_verdict (evaluate), whole_program, canary_check.
"""

"""The verdict on a benchmark target: build, test, run in alternation, confirm, summarise.

Face: benchmark_verdict, canary_check, whole_program.
"""

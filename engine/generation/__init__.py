"""Lets a worker write a benchmark for a kernel that has none, checks it and freezes it.

Face: generated_harness, harness_author, harness_checks.
"""

"""The manifest: its fields, the rules between them, and what it means to the harness.

Face: benchmark_target, goal, limits, load, rules, schema.
"""

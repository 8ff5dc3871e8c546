"""The manifest: its fields, the rules between them, and what it means to the harness.

Face: benchmark_target, command_checks, goal, limits, load, pool_schema, rules, schema.
"""

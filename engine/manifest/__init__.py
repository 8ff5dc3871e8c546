"""The manifest: its fields, the rules between them, and what it means to the harness.

Face: schema (Manifest and its parts), load (load, parse, dump), benchmark_target, goal.
"""

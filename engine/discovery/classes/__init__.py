"""Config classes: groups of benchmark rows that behave alike, and the shapes that represent them.

Face: class_baseline, proposal, quick_script, sample_runs.
"""

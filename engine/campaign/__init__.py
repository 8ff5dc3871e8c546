"""The folder of a campaign and the facts that stay fixed while it runs.

Face: artifacts, baseline_cache, declared_knobs, earlier_changes, folder, handover, judged_target,
project_skill, setup, shape_weights, task_notes.
"""

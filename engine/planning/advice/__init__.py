"""Asks a model for advice: hypotheses, causes, reviews; it is checked and never needed.

Face: model_planner, patch_reviewer, trace_analyst.
"""

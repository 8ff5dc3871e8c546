"""Asks a model for hypotheses, causes and reviews; kopt checks them and works without them.

Face: model_planner, patch_reviewer, trace_analyst.
"""

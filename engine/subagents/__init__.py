"""Subagents: the prompts and limits with which a model works in a slot, kept as data in folders.

Face: rendering, subagent, subagent_registry.
"""

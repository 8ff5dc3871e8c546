"""Drafts a task from what a program showed of a Python or Triton function.

Face: draft_task, drafted_target, entry_source, first_check, shape_program.
"""

"""Drafts a task from the calls of a Python or Triton function observed in a program.

Face: draft_task, drafted_target, entry_source, first_check, kernel_check, shape_program,
submission_program.
"""

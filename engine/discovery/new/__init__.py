"""Drafts the task and the manifest that `kopt new` shows to a person.

Face: draft_task, draft_kernel, draft_command, parameters.
"""

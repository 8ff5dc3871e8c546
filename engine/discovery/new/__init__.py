"""Drafts the task and the manifest that `kopt new` shows to a person.

Face: draft_command, draft_kernel, knob_trials, launch_constant, parameters.
"""

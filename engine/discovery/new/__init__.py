"""Drafts the task and the manifest that `kopt new` shows to a person.

Face: draft_command, draft_kernel, integer_ranges, knob_trials, launch_constant, named_reference,
parameters, reference_trial.
"""

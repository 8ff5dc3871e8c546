"""From a verdict to a ruling: keep, ask, tie, regression or reject, with the reason.

Face: candidate, commit_message, format_command, judge, stop_rules.
"""

"""From a verdict to a ruling: keep, ask, tie, regression or reject, with the reason.

Face: candidate, commit_message, format_command, judge, recorded_values, stop_rules.
"""

"""From a verdict to a ruling: keep, ask, tie, regression or reject, with the reason.

Face: attribution, candidate, commit_message, judge, stop_rules.
"""

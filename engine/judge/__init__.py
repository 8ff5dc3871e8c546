"""From a verdict to a ruling: keep, ask, tie, regression or reject, with the reason.

Face: judge (rule, Ruling), candidate (Entry), stop_rules, commit_message.
"""

"""The screens of the dashboard, one module each.

Face: base, campaigns, candidate, confirm, help, questions.
"""

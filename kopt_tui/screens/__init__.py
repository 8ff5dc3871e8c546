"""The screens of the dashboard, one module each, and the dialogs over them.

A screen places panes, hands them their part of a snapshot, and turns keys into requests.

Face: base, campaigns, candidate, confirm, help, knowledge, transcript.
"""

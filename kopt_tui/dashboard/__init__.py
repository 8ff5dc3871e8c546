"""Opens the dashboard, and the app behind its screens: modes, shared state, requests.

Face: launch.
"""

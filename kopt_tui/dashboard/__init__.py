"""Opens the Textual dashboard.

Face: launch.
"""

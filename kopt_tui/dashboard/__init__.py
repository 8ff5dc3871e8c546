"""Opens the Textual dashboard.

Face: launch (cheap to import), dashboard (Dashboard).
"""

"""Text, JSON, YAML and files: how data is read and written.

Face: every module.
"""

"""What the verbs of the `kopt` command share: parser, prompts, tables, JSON output.

Face: every module.
"""

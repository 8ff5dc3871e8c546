"""Patches: parse them without losing a byte, and drop what must not be in one.

Face: headers, hygiene, left_out, patch.
"""

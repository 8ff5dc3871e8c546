"""Patches: parse them without loss, and find what a candidate must not contain.

Face: hygiene, patch, same_change.
"""

"""Patches: parse them without losing a byte, and drop what must not be in one.

Face: patch (Patch, FilePatch), hygiene.
"""

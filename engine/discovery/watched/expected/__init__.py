"""Writes the reference that a program compares a function's result with.

Face: reference_source.
"""

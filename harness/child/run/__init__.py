"""Loads a kernel, calls it and times it."""

"""Verdicts: whether a candidate is valid, correct and faster; usable alone, as `python -m harness`."""

"""Verdicts: is a candidate valid, correct and faster? Usable alone: `python -m harness`."""

"""Recorded journals, and the dashboard without a terminal or on a pseudo-terminal."""

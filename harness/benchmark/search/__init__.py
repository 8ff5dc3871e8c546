"""Searches the knobs of a benchmark target; each trial is a whole benchmark run.

Face: command_loop.
"""

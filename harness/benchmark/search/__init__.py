"""Searches a source's knobs by whole benchmark runs.

Face: command_loop.
"""

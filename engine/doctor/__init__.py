"""Checks whether this machine is fit for kopt.

Face: machine, session, start, tools.
"""

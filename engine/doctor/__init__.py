"""Checks whether this machine is fit for kopt.

Face: machine_check (Check), start, machine, session, tools, containers.
"""

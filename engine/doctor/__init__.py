"""Checks whether this machine can run kopt: programs, packages, devices, surroundings.

Face: declared_packages, machine, surroundings, tools.
"""

"""Checks whether this machine can run kopt: programs, packages, devices, surroundings.

Face: tools, machine, session, start, declared_packages.
"""

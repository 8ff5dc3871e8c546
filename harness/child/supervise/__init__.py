"""Starts, confines, limits and stops untrusted programs; forks them off a zygote.

Face: supervisor.
"""

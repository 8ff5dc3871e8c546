"""Telemetry, foreign processes and slowdowns of a card while it is timed: which blocks are void.

Face: interference, telemetry_sources, tenants.
"""

"""Telemetry, foreign processes and slowdowns of a card: which timed blocks of calls are void.

Face: interference, telemetry_sources, tenants.
"""

"""Whether a card can be trusted while it is timed: telemetry, other processes, interference.

Face: interference, telemetry_nvidia, tenants.
"""

"""One verdict on one candidate of a kernel target, from the static audit to the timing.

Face: device_limits, evaluate, verdict_rows.
"""

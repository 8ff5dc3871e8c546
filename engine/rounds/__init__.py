"""One round: plan slots, run workers, verify candidates, keep the best.

Face: round (RoundRun), pool (Pool).
"""

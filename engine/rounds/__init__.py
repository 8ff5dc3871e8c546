"""One round: plan slots, run workers, verify candidates, keep the best.

Face: disk_space, pool, round, slots.
"""

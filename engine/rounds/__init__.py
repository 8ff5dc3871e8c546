"""One round: give tasks to slots, run workers, verify candidates, keep the best.

Face: active_round, disk_space, placing, pool, round.
"""

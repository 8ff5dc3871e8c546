"""One round: give tasks to slots, run workers, judge candidates, commit the fastest gain.

Face: active_round, disk_space, placing, pool, round.
"""

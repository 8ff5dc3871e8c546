"""One round: plan slots, run workers, verify candidates, keep the best.

Face: round (run_round), active_round (ActiveRound), pool, slots, disk_space.
"""

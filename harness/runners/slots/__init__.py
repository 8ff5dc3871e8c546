"""Shared memory of the oracle and a runner: the slots of checked calls and of timed ones.

Face: case_memory, slot_ring.
"""

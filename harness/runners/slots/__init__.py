"""Shared memory of the oracle and a runner: the slots of checked calls and of timed ones."""

"""Verdicts from harness processes, on devices that are free.

Face: canary, fleet, gate, harness_client, verifier.
"""

"""Verdicts from harness processes, on devices that are free.

Face: verifier (Verifier), fleet (Fleet), gate, canary, harness_client.
"""

"""Verdicts from harness processes, on devices that are free.

Face: canary, fleet, fleet_device, gate, harness_client, reference_forms, reference_lines, screener,
verifier.
"""

"""Supervisors with limits for untrusted processes, requests to them, and device locks.

Face: confinement, device_lock, guard, process_outcome, process_tree, raw_outputs, rpc, send_times,
shared_zygotes, supervisor_start, turn_watch, zygote_client.
"""

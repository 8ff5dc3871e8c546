"""Supervisors with limits for untrusted processes, requests to them, and device locks.

Face: device_lock, guard, passed_streams, process_outcome, process_tree, raw_outputs, reach, rpc,
send_times, shared_zygotes, supervisor_start, zygote_client.
"""

"""Untrusted processes under a supervisor with limits, questions to them, and device locks.

Face: device_lock, guard, process_tree, rpc, zygote_client.
"""

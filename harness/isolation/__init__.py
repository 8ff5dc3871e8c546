"""Untrusted processes under a supervisor with limits, questions to them, and device locks.

Face: guard (Guarded, run, Limits), rpc (Peer), device_lock (DeviceLock), zygote_client.
"""

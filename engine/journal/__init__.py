"""The journal: one SQLite file per workspace, written by one engine, read by everyone.

Face: database, lease, liveness, plan_event, read, records, write.
"""

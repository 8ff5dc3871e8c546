"""The journal: one SQLite file per workspace, written by one engine, read by everyone.

Face: write (Writer), read (Reader), records, lease.
"""

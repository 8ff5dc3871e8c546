"""The journal: one SQLite file per workspace, written by one engine, read by everyone.

`schema.sql` creates the tables; `migrations` converts a journal of an older kopt.

Face: database, judged_rows, lease, liveness, model_costs, read, records, write.
"""

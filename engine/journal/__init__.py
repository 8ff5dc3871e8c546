"""The journal: one SQLite file per workspace, written by one engine, read by everyone.

`schema.sql` makes the tables; `migrations` brings a journal of an older kopt up to them.

Face: database, lease, liveness, model_costs, patch_review, plan_event, read, records, write.
"""

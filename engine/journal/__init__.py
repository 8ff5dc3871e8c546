"""The journal: one SQLite file per workspace, written by one engine, read by everyone.

Face: database, lease, liveness, model_costs, patch_review, plan_event, read, records, write.
"""

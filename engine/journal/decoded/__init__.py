"""What rows of the journal hold as JSON, decoded: verdicts, trials, plans of rounds, reviews.

Face: patch_review, plan_event, recorded.
"""

"""Views of what a campaign did, computed from its journal and not stored.

Face: attempt_digest, campaign_view, change_summary, history, kept_commits, kernel_splits, lessons,
regression, round_resume, spending, time_growth, waiting_line.
"""

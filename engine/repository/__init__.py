"""Git: the campaign's clone and branch, worktrees, checkouts, and patches.

Face: campaign_repo (Lineage), clone (Clone), project (Project), worktree, checkout, patches.
"""

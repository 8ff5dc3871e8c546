"""Git: the campaign's clone and branch, worktrees, checkouts, and patches.

Face: campaign_repo, checkout, clone, git, lfs, project, submodules, worktree.
"""

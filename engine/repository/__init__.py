"""Git: the campaign's clone and branch, slots' worktrees, candidates as trees, and patches.

Face: campaign_repo (CampaignRepo), change (Change), clone (Clone), project (Project), git,
checkout, worktree, submodules, lfs, patches.
"""

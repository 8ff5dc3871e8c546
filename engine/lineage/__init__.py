"""The lines of kept and of waiting commits: promote a winner, measure the headline, roll back.

Face: commit, headline, promote, provisional, rollback.
"""

"""The line of kept commits: promote a winner, commit it, measure the headline, roll back.

Face: commit, headline, promote, rollback.
"""

"""The lines of kept and of waiting commits: promote a winner, measure the headline, roll back.

Face: candidate_rulings, commit, headline, promote, provisional, rollback.
"""

"""The line of kept commits: promote a winner, commit it, measure the headline, roll back.

Face: promote (Keeper), rollback, headline, deferred.
"""

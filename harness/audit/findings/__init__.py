"""What an audit reports: one sighting in a source, and the changed files it can occur in.

Face: sighting, tree_diff, watched_names.
"""

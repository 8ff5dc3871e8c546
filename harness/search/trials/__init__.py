"""Trials of a search and where they are recorded: the corpus, a loop's own log, results.tsv.

Face: corpus, trial_log, trials, trials_tsv.
"""

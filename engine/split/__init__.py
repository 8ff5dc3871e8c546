"""Writes specialised kernels for config classes into one source, with the dispatch to them.

Face: specialise, merge, class_preferences, languages.
"""

"""Writes specialised kernels for config classes into one source, with the dispatch to them.

Face: class_preferences, dispatch_columns, merge, regions, specialise.
"""

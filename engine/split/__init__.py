"""Writes kernels that are specialised for some config classes, and the dispatch to them, into one
source.

Face: class_preferences, class_sizes, specialise, unused_variants.
"""

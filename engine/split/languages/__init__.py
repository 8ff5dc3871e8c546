"""What a split needs to know of a source language: items, entry functions, dispatch code.

Face: language (Language), detect.
"""

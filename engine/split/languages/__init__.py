"""What a split must know of a source language: items at file scope, entry functions, dispatchers.

Face: c_language, conditions, detect, language, syntax.
"""

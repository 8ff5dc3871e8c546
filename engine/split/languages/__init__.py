"""What a split needs to know of a source language: items, entry functions, dispatch code.

Face: c_dispatch, c_entries, c_source, call_graph, conditions, detect, language.
"""

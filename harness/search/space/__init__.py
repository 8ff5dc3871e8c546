"""The space of a search: a tunable source, its knobs and the requirements between them.

Face: constraints, knobs, tunable_source.
"""

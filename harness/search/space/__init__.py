"""The space of a search: a tunable source, its knobs and the requirements between them.

Face: constraints, knob_proposals, knobs, tunable_source, tuning_table.
"""

"""The space of a search: a tunable source, its knobs and the requirements between them.

Face: c_knobs, constraints, knob_edits, knob_proposals, knobs, python_entry, tunable_source,
tuning_table.
"""

"""The panes, tables and bars that screens are made of.

Face: about, bars, chart, classes, column, devices, facts, keys, limits, log, pane, patch, report,
slots, stream, table, tones.
"""

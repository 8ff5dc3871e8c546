"""The panes, lists and bars that screens are made of.

A pane is handed rows of a snapshot and draws them as lines; it reads nothing by itself.

Face: about_pane, bars, bottleneck_pane, candidate_pane, chart_pane, classes_pane, device_pane,
keys, list_pane, log_pane, pane, patch_pane, report_pane, slots_pane, tones, transcript_pane.
"""

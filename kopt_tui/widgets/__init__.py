"""The panes, lists and bars that screens are made of.

A pane is handed rows of a snapshot and draws them as lines; it reads nothing by itself.
"""

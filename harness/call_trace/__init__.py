"""`kopt trace`: counts how often a program calls a function with which shapes.

Face: counts, foreground, shapes, weights.
"""

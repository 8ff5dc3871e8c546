"""`kopt trace`: counts how often a program calls a function with which shapes.

Face: counts (prepare, gather), shapes, weights (Weights), foreground.
"""

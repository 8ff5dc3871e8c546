"""Backends that turn the best commit into a candidate, behind one protocol.

Face: registry (backends by name), protocol (Worker, Bench, Report).
"""

"""Whole campaigns and engines for tests, from a tiny project to the waiting line."""

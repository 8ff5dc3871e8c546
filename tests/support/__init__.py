"""Helpers that tests share: small projects, journals, agents, real processes."""

"""Recorded cards and stand-ins for their vendors' tools."""

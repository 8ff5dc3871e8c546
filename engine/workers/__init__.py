"""Backends that turn the best commit into a candidate, behind one protocol.

Face: agent, inbox, protocol, registry, slot_facts, template, transcript.
"""

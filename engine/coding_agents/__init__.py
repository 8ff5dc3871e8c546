"""Command lines of known coding agents: how each one runs, and how its JSON stream is read.

Face: agent_stream, agent_templates, provider_address.
"""

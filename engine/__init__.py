"""Campaigns: rounds of candidates, judged by the harness, kept as commits, journalled."""

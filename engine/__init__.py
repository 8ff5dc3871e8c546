"""Campaigns: rounds of candidates; the harness judges them, gains become commits."""

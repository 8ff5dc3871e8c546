"""Draws secret inputs and keeps the expected values, away from every candidate."""

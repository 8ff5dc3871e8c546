"""Honest candidates that resemble an exploit."""

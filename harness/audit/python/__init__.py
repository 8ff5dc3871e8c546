"""Audits Python and Triton sources, parsed as trees and never executed.

Face: scan_python, and the single checks beside it.
"""

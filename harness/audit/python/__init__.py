"""Audits Python and Triton sources, parsed as trees and never executed.

Face: cache_keys, delegation, imports, key_flow, names, scan_python, watched_python_names.
"""

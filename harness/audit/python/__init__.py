"""Audits Python and Triton sources, parsed as trees and never executed.

Face: cache_keys, delegation, key_flow, names, scan_python, source_checks, source_tree.
"""

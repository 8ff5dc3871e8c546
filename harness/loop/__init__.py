"""Keep-or-revert search over a kernel's knobs; trials are screening values, not verdicts.

Face: loop.
"""

"""Keep-or-revert search over a kernel's knobs; times of trials are no verdicts.

Face: loop.
"""

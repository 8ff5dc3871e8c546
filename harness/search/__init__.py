"""Search over configurations: the space, the strategy, the model, the trials.

Face: keep_or_revert, strategy.
"""

"""Search over configurations: the space, the strategy, the model, the trials.

Face: the rooms space, strategy, bayesian and trials.
"""

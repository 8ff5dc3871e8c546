"""Which configuration to try next, and which trial is the best so far.

Face: ask_tell, incumbent, predicted_order.
"""

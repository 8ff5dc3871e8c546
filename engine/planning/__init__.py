"""What a round tries next: survey, bottlenecks, hypotheses, routing, stagnation reviews, tips.

Face: planner, pool_size, survey, tips.
"""

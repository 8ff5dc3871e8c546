"""What a round tries next: survey, bottlenecks, hypotheses, routing, stagnation reviews, tips.

Face: kernel_routing, outages, planner, pool_size, survey, tips.
"""

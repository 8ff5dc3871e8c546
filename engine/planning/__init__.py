"""What a round tries next: survey, bottlenecks, hypotheses, routing, stagnation reviews, tips.

Face: planner (Steering), survey (Survey), round_plan, bottlenecks, tips.
"""

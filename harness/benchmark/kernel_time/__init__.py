"""GPU kernel time of a benchmark run, measured by CUPTI, to confirm reported gains.

Face: cupti, gain.
"""

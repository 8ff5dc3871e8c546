"""GPU kernel time of a benchmark run, measured by CUPTI or rocprofv3, to confirm reported gains.

Face: gain, profile, profilers.
"""

"""The processes of one evaluation: oracle, kernel runners, profiling runs.

Face: session (Stage), oracle_client (Oracle), runner_pool (Runners), startup.
"""

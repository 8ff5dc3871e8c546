"""The processes of one evaluation: oracle, kernel runners, profiling runs.

Face: kept_oracle, kernel_spans, oracle_client, process_home, profile_cache, runner_pool, session,
shared_process.
"""

"""Makes a task of a flashinfer-bench definition, its workloads and a solution.

Face: bench_schema, definition_files, draft_definition.
"""

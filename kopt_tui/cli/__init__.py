"""What the verbs of the `kopt` command share: parser, prompts, tables, JSON output.

Face: batch_runs, bench_files, campaign_choice, earlier_changes, event_stream, gpu_gate, output,
output_files, parser, prompt, trace_target, user_repository.
"""

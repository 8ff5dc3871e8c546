"""What the verbs of the `kopt` command share: parser, prompts, tables, JSON output.

Face: campaign_choice, event_stream, gpu_gate, output, output_files, parser, prompt, trace_target,
user_repository, verdict_text.
"""

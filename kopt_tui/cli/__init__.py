"""What the verbs of the `kopt` command share: parser, prompts, tables, JSON output.

Face: batch_runs, campaign_choice, event_stream, gpu_gate, output, output_files, parser, prompt,
stage_line, submission, text_lines, user_repository.
"""

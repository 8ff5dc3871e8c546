"""What the verbs of the `kopt` command share: parser, prompts, tables, JSON output.

Face: campaign_choice, gpu_gate, json_output, parser, prompt, request, text_table, verdict_text.
"""

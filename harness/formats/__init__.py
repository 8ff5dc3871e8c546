"""Reads and writes text, JSON, YAML and files.

Face: expression, file_copy, json_codec, jsonl, quantities, safetensors, shell_command, text,
yaml_decode, yaml_document, yaml_values.
"""

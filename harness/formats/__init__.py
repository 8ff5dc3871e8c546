"""Text, JSON, YAML and files: how data is read and written.

Face: expression, file_copy, json_codec, jsonl, text, yaml_decode, yaml_document.
"""

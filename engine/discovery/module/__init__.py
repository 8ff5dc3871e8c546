"""Makes a task of a file with a PyTorch `Model`, `get_inputs` and `get_init_inputs`.

Face: draft_module, module_files.
"""

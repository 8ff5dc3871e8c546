"""A task: the kernel under test, its arguments, reference, launch and config classes.

Face: target, task_file.
"""

"""A task: the kernel under test, its arguments, reference, launch and config classes.

Face: kernel_launch, target, task_file.
"""

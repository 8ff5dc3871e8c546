"""Reads the text of a program that calls a kernel: its sizes, arrays, numbers and launch.

Face: host_reference, program_call.
"""

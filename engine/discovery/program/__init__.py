"""Reads the text of a program that calls a kernel: its sizes, arrays, numbers and launch.

Face: program_call.
"""

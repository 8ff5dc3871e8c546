"""Looks for what a kernel changed in its process: globals, threads, mapped code, launches."""

"""Counts calls inside a user's program, where it is loaded as the package kopt_calls.

Python 3.8 and newer. It imports only modules that every interpreter has loaded or built in: any
other name may be a module of the program, which an import here would hide or run.
"""

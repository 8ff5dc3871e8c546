"""What counts calls inside a user's program: in its processes, a package by the name kopt_calls.

Python 3.8 and newer. It imports only what every interpreter has loaded or has built in: any other
name may be a module of the program's own, which would be hidden, or run, by an import here.
"""

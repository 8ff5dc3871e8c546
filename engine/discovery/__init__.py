"""What kopt infers about a project, so that a person has to say less.

Face: the rooms project, classes and new.
"""

"""The program that asks a language model for a slot, and a provider of scripted answers.

`agent_child` is started as a program; tests and demonstrations start the provider.
"""

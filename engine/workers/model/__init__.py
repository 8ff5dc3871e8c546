"""The program that asks a language model, or a script in its place, and ways to providers.

`agent_child` is started as a program.

Face: attempt_limits, model_process, provider_forwarder, provider_routes.
"""

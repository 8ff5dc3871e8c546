"""The program that asks a language model for a slot, ways to providers, scripted answers.

`agent_child` is started as a program; tests and demonstrations start `scripted_provider`.
Face: attempt_limits, model_process, provider_forwarder, provider_routes,
single_request.
"""

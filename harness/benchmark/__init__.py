"""Targets that are measured by the project's own benchmark command.

Face: verdict.benchmark_verdict, search.command_loop, spec.command_target (CommandTarget).
"""

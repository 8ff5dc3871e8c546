"""What of a manifest a campaign does not act on, so that its start can tell."""

from __future__ import annotations

from engine.manifest import goal
from engine.manifest.benchmark_target import command_target, primary
from engine.manifest.schema import Manifest, publishes
from harness.benchmark.spec.command_target import CommandTarget
from harness.target import Target

OF_COMMANDS = ("target_shapes", "representative_shapes", "setup_command", "build_command",
               "benchmark_command", "quick_command")
"""Fields that campaigns on kernels do not act on: the task file says it, and the harness builds."""


def unheeded(manifest: Manifest, task: Target | CommandTarget | None = None) -> tuple[str, ...]:
    """Return the fields that were given and will not be acted on."""
    default, command = Manifest(target_op="-"), manifest.target.kind == "command"
    task = command_target(manifest) if command and task is None else task
    unused = list(() if command else OF_COMMANDS)
    if command and not (manifest.quick_command
                        and manifest.representative_shapes == manifest.target_shapes):
        unused.append("target_shapes")
    if not (command and primary(manifest)):
        unused.append("primary_metric")
    if not publishes(manifest) and manifest.git_branch != "none" \
            and not manifest.git_branch.startswith("optimize/"):
        unused.append("git_branch")
    wanted = goal.parse(manifest.performance_target or "")
    if wanted is None or (task is not None and not goal.checkable(wanted, task)):
        unused.append("performance_target")
    return tuple(name for name in unused if getattr(manifest, name) != getattr(default, name))

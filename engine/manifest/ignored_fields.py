"""List the manifest fields that a campaign does not act on, so that its start can report them."""

from __future__ import annotations

from engine.manifest import goal
from engine.manifest.benchmark_target import command_target, primary_metrics
from engine.manifest.schema import Manifest, publishes_commits
from harness.benchmark.spec.command_target import CommandTarget
from harness.target import Target

COMMAND_FIELDS = ("target_shapes", "representative_shapes", "setup_command", "build_command",
                  "benchmark_command", "quick_command")
"""Fields of command targets only: a kernel's task file has the shapes, and the harness builds."""


def ignored_fields(manifest: Manifest,
                   task: Target | CommandTarget | None = None) -> tuple[str, ...]:
    """Return the fields that are set and have no effect."""
    default, is_command = Manifest(target_op="-"), manifest.target.kind == "command"
    task = command_target(manifest) if is_command and task is None else task
    unused = list(() if is_command else COMMAND_FIELDS)
    if is_command and not (manifest.quick_command
                           and manifest.representative_shapes == manifest.target_shapes):
        unused.append("target_shapes")
    if not (is_command and primary_metrics(manifest)):
        unused.append("primary_metric")
    if not publishes_commits(manifest) and manifest.git_branch != "none" \
            and not manifest.git_branch.startswith("optimize/"):
        unused.append("git_branch")
    target = goal.parse_goal(manifest.performance_target or "")
    if target is None or (task is not None and not goal.is_checkable(target, task)):
        unused.append("performance_target")
    return tuple(name for name in unused if getattr(manifest, name) != getattr(default, name))

"""Builds the backends of a campaign, by name."""

from __future__ import annotations

from pathlib import Path

from engine.manifest.schema import Manifest
from engine.workers import inbox, kernel_split, knob_search, template, transform
from engine.workers.agent import AgentWorker
from engine.workers.cli import CliWorker
from engine.workers.protocol import Worker


def workers(manifest: Manifest) -> dict[str, Worker]:
    """Return every backend that a campaign may use, by its name in the manifest."""
    built: dict[str, Worker] = {
        "search": knob_search.work, "split": kernel_split.work, "transform": transform.work,
        "rewrite-template": template.work, "inbox": inbox.work,
        "cli": CliWorker(manifest.pool.cli, Path(manifest.project)).work}
    if manifest.pool.agent is not None:
        built["agent"] = AgentWorker(manifest.pool.agent, Path(manifest.project)).work
    return built

"""Builds the backends of a campaign, by name."""

from __future__ import annotations

from pathlib import Path

from engine.manifest.schema import Manifest
from engine.workers.agent import AgentWorker
from engine.workers.cli import CliWorker
from engine.workers.inbox import InboxWorker
from engine.workers.kernel_split import SplitWorker
from engine.workers.knob_search import SearchWorker
from engine.workers.protocol import Worker
from engine.workers.template import TemplateWorker
from engine.workers.transform import TransformWorker


def workers(manifest: Manifest) -> dict[str, Worker]:
    """Return every backend that a campaign may use, by its name in the manifest."""
    built: dict[str, Worker] = {
        "search": SearchWorker(), "split": SplitWorker(), "transform": TransformWorker(),
        "rewrite-template": TemplateWorker(),
        "inbox": InboxWorker(), "cli": CliWorker(manifest.pool.cli, Path(manifest.project))}
    if manifest.pool.agent is not None:
        built["agent"] = AgentWorker(manifest.pool.agent, Path(manifest.project))
    return built

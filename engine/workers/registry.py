"""The backends by name."""

from __future__ import annotations

from engine.manifest import Manifest
from engine.workers.base import Worker
from engine.workers.cli import CliWorker
from engine.workers.inbox import InboxWorker
from engine.workers.search import SearchWorker
from engine.workers.split import SplitWorker
from engine.workers.template import TemplateWorker
from engine.workers.tune import TuneWorker


def workers(manifest: Manifest) -> dict[str, Worker]:
    """Return every backend that a campaign may use, by its name in the manifest."""
    search = TuneWorker() if manifest.target.kind == "command" else SearchWorker()
    return {"search": search, "split": SplitWorker(), "rewrite-template": TemplateWorker(),
            "inbox": InboxWorker(), "cli": CliWorker(manifest.pool.cli)}

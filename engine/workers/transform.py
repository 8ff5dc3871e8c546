"""The `transform` backend: one change of the kernel's own source, made without a model.

The planner names the transformation. Where it declares knobs, a search over them follows.
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from engine.task import Task
from engine.transformations import transformation_registry
from engine.workers.knob_search import search, summary
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.errors import Refused
from harness.search.space import knobs


class TransformWorker:
    """Applies one transformation to the best source, and searches over the knobs it declares."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        transformation = transformation_registry.find(task.option)
        if transformation is None:
            raise Refused(f"there is no transformation {task.option!r}")
        path = Path(bench.worktree) / bench.target.source
        tick("transforming", transformation.name, None)
        changed = transformation.apply(knobs.read(path))
        path.write_bytes(changed.source.encode())
        if not changed.knobs:
            return Report(ok=True, summary=changed.what)
        result = search(msgspec.structs.replace(task, knobs=changed.knobs), bench, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        path.write_bytes(result.source.encode())
        return Report(ok=True, summary=f"{changed.what}; {summary(result)}", trials=result.trials)

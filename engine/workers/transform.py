"""The `transform` backend: one change of the kernel's own source, made without a model.

The planner names the transformation. Where it declares knobs, a search over them follows.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec

from engine.routing import source_language
from engine.task import Task
from engine.transformations import transformation_registry
from engine.workers import knob_search
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.errors import Refused
from harness.search.space import knobs
from harness.tasks.target import Language, Target


def work(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
    """Apply one transformation to the best source, and search over the knobs it declares."""
    name, other = transformation_registry.of_option(task.option)
    transformation = transformation_registry.find(name)
    if transformation is None:
        raise Refused(f"there is no transformation {task.option!r}")
    if other:
        bench = _of_file(bench, other)
    path = Path(bench.worktree) / bench.target.source
    tick("transforming", transformation.name, None)
    entry = bench.target.entry if isinstance(bench.target, Target) else ""
    changed = transformation_registry.apply(
        transformation, knobs.read(path), bench.target.language, entry)
    path.write_bytes(changed.source.encode())
    if not changed.knobs:
        return Report(ok=True, summary=changed.what)
    return knob_search.work(msgspec.structs.replace(task, knobs=changed.knobs), bench, tick, cancel,
                            changed=changed.what)


def _of_file(bench: WorkerBench, path: str) -> WorkerBench:
    """Return the bench with another file as the source, whose knobs a search may change."""
    language = source_language.detect(knobs.read(Path(bench.worktree) / path), path)
    return msgspec.structs.replace(bench, target=replace(
        bench.target, source=path, language=cast(Language, language)))

"""The workers that move knobs by a project's own benchmark: for all classes, and for some."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.split.languages.c_language import C
from engine.task import Task
from engine.workers import kernel_split
from engine.workers.command_search import TuneWorker
from engine.workers.kernel_split import SplitWorker
from engine.workers.knob_search import so_far
from engine.workers.protocol import Report, Worker, WorkerBench
from harness.errors import Refused
from harness.search.space import knobs
from harness.search.trials.trials import ConfigRows, LoopResult, Trial
from tests.support import split_case
from tests.support.split_case import bench


def worked(worker: Worker, given: WorkerBench, *, trials: int = 9,
           only: tuple[str, ...] = ("TILE",), end_at: str = "") -> Report:
    ended = threading.Event()

    def tick(stage: str, detail: str, done: float | None) -> None:
        if end_at and detail.startswith(end_at):
            ended.set()

    task = Task(slot="fixed", kind="fixed", backend="search", hypothesis="", bottleneck="", seed=1,
                trials=trials, knobs=only)
    return worker.work(task, given, tick, ended)


def source(given: WorkerBench) -> str:
    return (Path(given.worktree) / "total.c").read_text()


@pytest.mark.slow
def test_the_best_for_all_is_written_into_the_source(tmp_path: Path) -> None:
    given = bench(tmp_path, total_c=split_case.KERNEL.replace("TILE 32", "TILE 4"))
    report = worked(TuneWorker(), given)
    assert report.ok and report.summary == "3 of 3 configurations screened; best TILE=32"
    assert source(given) == split_case.KERNEL and len(report.trials) == 3


@pytest.mark.slow
def test_one_that_is_ended_early_leaves_the_best_so_far(tmp_path: Path) -> None:
    given = bench(tmp_path)
    report = worked(TuneWorker(), given, only=(), end_at="trial 2 ")
    assert report.ok and 2 <= len(report.trials) < 6
    best = next(trial for trial in reversed(report.trials) if trial.kept)
    assert f"TILE {best.config['TILE']} " in source(given)


def test_what_a_killed_search_has_kept_is_not_lost(tmp_path: Path) -> None:
    given = bench(tmp_path)
    trials = [Trial(number=0, config={"TILE": 32}, correctness="PASS", tag="kept"),
              Trial(number=1, config={"TILE": 4}, correctness="PASS", tag="kept"),
              Trial(number=2, config={"TILE": 256}, correctness="PASS", tag="tried")]
    found = so_far(given, trials)
    assert found is not None and found.best == {"TILE": 4} and "TILE 4 " in found.source
    assert so_far(given, []) is None


@pytest.mark.slow
def test_classes_that_want_other_knobs_get_kernels_of_their_own(tmp_path: Path) -> None:
    given = bench(tmp_path)
    report = worked(SplitWorker(), given)
    assert report.ok, report.summary
    assert "2 classes with context >= 1024: TILE=256 (≥41." in report.summary
    assert "1 class with context <= 8: TILE=4 (≥20." in report.summary
    assert report.hypothesis.startswith("a specialised kernel where context >= 1024 (context=4096")
    _, (block,) = C().read(source(given))
    assert [str(one.condition) for one in block.branches] == ["context <= 8", "context >= 1024"]
    again = worked(SplitWorker(), given, trials=4)
    assert again.ok and "no config class is more than 2% faster" in again.summary
    assert knobs.current(knobs.find(source(given), language="c")) == {
        "TILE": 32, "START": 16, "TILE_v1": 256, "TILE_v2": 4}
    assert worked(TuneWorker(), given, trials=2).ok


@pytest.mark.slow
def test_a_split_that_is_ended_early_leaves_the_source_as_it_is(tmp_path: Path) -> None:
    given = bench(tmp_path)
    report = worked(SplitWorker(), given, end_at="trial 2 ")
    assert not report.ok and report.summary == "stopped before classes were compared"
    assert source(given) == split_case.KERNEL


def test_what_is_neither_c_nor_python_is_refused(tmp_path: Path) -> None:
    given = bench(tmp_path, replace(split_case.TARGET, source="total.cu"))
    with pytest.raises(Refused, match=r"total.cu is neither C nor Python"):
        worked(SplitWorker(), given)


def test_no_column_is_a_parameter() -> None:
    found = LoopResult(best={"TILE": 32}, log_ratio=0.0, source="", trials=(), space_size=3,
                       columns=("context", "impl"),
                       classes=(ConfigRows(name="all", cells=(("8", "tiled"),)),))
    assert kernel_split.divided(split_case.KERNEL, found, split_case.TARGET) == (
        split_case.KERNEL,
        (),
    )
    with pytest.raises(Refused, match="no exported function takes a column"):
        kernel_split.divided(
            split_case.KERNEL.replace("context", "length"), found, split_case.TARGET
        )

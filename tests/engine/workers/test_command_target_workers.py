"""The backends search and split on command targets, where they run the project's benchmark."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from engine.split.languages.c_language import C
from engine.workers import inbox, kernel_split, knob_search
from engine.workers.kernel_split import split_by_knobs
from engine.workers.knob_search import best_so_far
from engine.workers.protocol import Report, Worker, WorkerBench
from harness.errors import Refused
from harness.search.space import knobs
from harness.search.trials.trials import ConfigRows, LoopResult, Trial
from tests.support.agents import worker_bench
from tests.support.searches import split_case


def run_worker(worker: Worker, bench: WorkerBench, *, trials: int = 9,
               only: tuple[str, ...] = ("TILE",), cancel_at: str = "",
               shown: list[str] | None = None) -> Report:
    cancel = threading.Event()

    def tick(stage: str, detail: str, done: float | None) -> None:
        if shown is not None:
            shown.append(detail)
        if cancel_at and detail.startswith(cancel_at):
            cancel.set()

    return worker(worker_bench.task("search", trials=trials, knobs=only), bench, tick, cancel)


def source(bench: WorkerBench) -> str:
    return (Path(bench.worktree) / "total.c").read_text()


def test_submitted_file_takes_the_place_of_the_source(tmp_path: Path) -> None:
    bench, file = split_case.bench(tmp_path), tmp_path / "idea.source"
    file.write_text("Hypothesis: fewer steps\n\nint64_t steps;\n")
    report = inbox.work(worker_bench.task("inbox", option=str(file)), bench, lambda *_: None,
                        threading.Event())
    assert report.ok and report.hypothesis == "fewer steps"
    assert source(bench) == "int64_t steps;\n"


@pytest.mark.slow
def test_search_writes_best_configuration_into_source(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path, total_c=split_case.KERNEL.replace("TILE 32", "TILE 4"))
    report = run_worker(knob_search.work, bench)
    assert report.ok and report.summary == "3 of 3 configurations screened; best TILE=32"
    assert source(bench) == split_case.KERNEL and len(report.trials) == 3


@pytest.mark.slow
def test_cancelled_search_leaves_best_configuration_so_far(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path)
    report = run_worker(knob_search.work, bench, only=(), cancel_at="trial 2 ")
    assert report.ok and 2 <= len(report.trials) < 6
    best = next(trial for trial in reversed(report.trials) if trial.kept)
    assert f"TILE {best.config['TILE']} " in source(bench)


def test_best_so_far_is_last_kept_trial(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path)
    trials = [Trial(number=0, config={"TILE": 32}, correctness="PASS", tag="kept"),
              Trial(number=1, config={"TILE": 4}, correctness="PASS", tag="kept"),
              Trial(number=2, config={"TILE": 256}, correctness="PASS", tag="tried")]
    result = best_so_far(bench, trials)
    assert result is not None and result.best == {"TILE": 4} and "TILE 4 " in result.source
    assert best_so_far(bench, []) is None


@pytest.mark.slow
def test_classes_that_prefer_other_knobs_get_kernels_of_their_own(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path)
    report = run_worker(kernel_split.work, bench)
    assert report.ok, report.summary
    assert "2 classes with context >= 1024: TILE=256 (≥41." in report.summary
    assert "1 class with context <= 8: TILE=4 (≥20." in report.summary
    assert report.hypothesis.startswith("a specialised kernel where context >= 1024 (context=4096")
    _, (block,) = C().read(source(bench))
    conditions = [str(branch.condition) for branch in block.branches]
    assert conditions == ["context <= 8", "context >= 1024"]
    again = run_worker(kernel_split.work, bench, trials=4)
    assert again.ok and "no config class gains more than 2%" in again.summary
    assert knobs.current(knobs.find(source(bench), language="c")) == {
        "TILE": 32, "START": 16, "TILE_v1": 256, "TILE_v2": 4}
    assert run_worker(knob_search.work, bench, trials=2).ok


@pytest.mark.slow
def test_stopped_search_goes_on_after_its_recorded_trials(tmp_path: Path) -> None:
    bench = msgspec.structs.replace(split_case.bench(tmp_path), searches=str(tmp_path / "searches"))
    stopped = run_worker(knob_search.work, bench, cancel_at="trial 1 ")
    assert 1 <= len(stopped.trials) < 3 and source(bench) == split_case.KERNEL
    shown: list[str] = []
    resumed = run_worker(knob_search.work, bench, shown=shown)
    assert resumed.ok and len(resumed.trials) == 3
    assert resumed.trials[:len(stopped.trials)] == stopped.trials
    assert not any(detail.startswith("trial 1 ") for detail in shown)
    assert f"continues after trial {len(stopped.trials)} of 9, recorded by an earlier engine" \
        in shown


@pytest.mark.slow
def test_cancelled_split_leaves_source_unchanged(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path)
    report = run_worker(kernel_split.work, bench, cancel_at="trial 2 ")
    assert not report.ok and report.summary == "stopped before classes were compared"
    assert source(bench) == split_case.KERNEL


def test_source_in_another_language_is_refused(tmp_path: Path) -> None:
    bench = split_case.bench(tmp_path, replace(split_case.TARGET, source="total.cu"))
    with pytest.raises(Refused, match=r"total.cu is neither C nor Python"):
        run_worker(kernel_split.work, bench)


def test_split_is_refused_if_no_exported_function_takes_a_column() -> None:
    result = LoopResult(best={"TILE": 32}, log_ratio=0.0, source="", trials=(), space_size=3,
                        columns=("context", "impl"),
                        classes=(ConfigRows(name="all", cells=(("8", "tiled"),)),))
    assert split_by_knobs(split_case.KERNEL, result, split_case.TARGET) == (split_case.KERNEL, ())
    with pytest.raises(Refused, match="no exported function takes a column"):
        split_by_knobs(split_case.KERNEL.replace("context", "length"), result, split_case.TARGET)

"""Searches over a command target's knobs, with real builds and real benchmark runs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.benchmark.search import finals
from harness.benchmark.search.command_loop import sweep
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices import inventory
from harness.errors import InputError
from harness.requests import Progress, ReportedLoopRequest
from harness.search.strategy import FIRST_FOR_ALL, RoundRobin
from harness.search.trials.trials import ClassGain, LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.verdict import Config
from tests.support.searches import split_case
from tests.support.searches.split_case import TARGET, project


def searched(folder: Path, *, budget: int = 6, only: tuple[str, ...] = ("TILE",), repeats: int = 0,
             target: CommandTarget = TARGET, seed: int = 1, cancel: threading.Event | None = None,
             on_trial: Any = None, **files: str) -> LoopResult:
    tree = project(folder / "tree", **files)
    return sweep(
        target,
        SearchJob(tree=str(tree), reference="", budget=budget, seed=seed, only=only),
        inventory.find("cpu"),
        Settings(scratch=str(folder / "scratch")),
        repeats=repeats,
        cancel=cancel,
        on_trial=on_trial,
    )


@pytest.mark.slow
def test_each_trial_is_paired_with_the_default(tmp_path: Path) -> None:
    """A whole search, as the engine requests it, in a process of its own."""
    tree = project(tmp_path / "tree")
    trials: list[Trial] = []
    stages: list[Progress] = []
    result = harness_client.loop(ReportedLoopRequest(
        target=TARGET, device="cpu", repeats=3, settings=Settings(scratch=str(tmp_path / "s")),
        job=SearchJob(tree=str(tree), reference="", budget=9, seed=1, only=("TILE",))),
        on_trial=trials.append, progress=stages.append)
    assert result is not None and list(result.trials) == trials
    first, *others = trials
    assert first.config == {"TILE": 32} and first.correct and abs(first.log_ratio or 1) < 0.01
    assert sorted(trial.config["TILE"] for trial in others) == [4, 256]
    assert [trial.number for trial in trials] == [0, 1, 2] and result.space_size == 3
    by_tile = {trial.config["TILE"]: trial for trial in trials}
    assert by_tile[256].by_class == pytest.approx({
        "context=8": -1.735, "context=16": -1.735, "context=1024": 0.345, "context=4096": 0.345},
        abs=0.01)
    assert all(trial.latency_kind == "reported" and trial.candidate_id for trial in trials)
    assert result.best == {"TILE": 32} and result.source == split_case.KERNEL
    assert result.columns == ("context", "heads", "impl")
    names = [row_class.name for row_class in result.classes]
    assert names[:2] == ["context=4096", "context=1024"]  # the others cost the same
    assert sorted(names[2:]) == ["context=16", "context=8"]
    assert result.classes[0].cells == (("4096", "1", "tiled"), ("4096", "3", "tiled"))
    best = {row_class.name: result.best_in(row_class.name) for row_class in result.classes}
    assert {name: config["TILE"] for name, (config, _) in best.items()} == {
        "context=8": 4, "context=16": 32, "context=1024": 256, "context=4096": 256}
    assert best["context=8"][1].pairs == 3 and best["context=8"][1].gain == pytest.approx(
        0.182, abs=0.01)
    assert best["context=8"][1].sure > 0.15
    assert {"timing", "building"} <= {stage.stage for stage in stages}
    assert not list((tmp_path / "s" / "reported").glob("*"))
    assert (tree / "total.c").read_text() == split_case.KERNEL and not (tree / "bench.csv").exists()


@pytest.mark.slow
def test_failing_configurations_are_trials(tmp_path: Path) -> None:
    kernel = split_case.KERNEL.replace("i < count ? x[i] : 0", "i < count - (TILE == 4) ? x[i] : 0")
    result = searched(tmp_path, total_c=kernel.replace(
        "#define MASK", "#if TILE == 256\n#error no room\n#endif\n#define MASK"))
    outcomes = {trial.config["TILE"]: (trial.correctness, trial.tag) for trial in result.trials}
    assert outcomes == {32: ("PASS", "kept"), 4: ("FAIL", "revert"), 256: ("REJECTED", "rejected")}
    reasons = {trial.config["TILE"]: trial.reason for trial in result.trials}
    assert reasons[4] == "err is '1', expected == 0" and "does not build" in reasons[256]
    assert result.best == {"TILE": 32} and result.contenders == ()


@pytest.mark.slow
def test_search_runs_the_quick_command(tmp_path: Path) -> None:
    target = replace(TARGET, quick_command="python bench.py --quick")
    kernel = split_case.KERNEL.replace("TILE 32", "TILE 4")
    result = searched(tmp_path, target=target, only=(), total_c=kernel)
    assert {row_class.name for row_class in result.classes} == {"context=8", "context=1024"}
    assert result.best == {"TILE": 32, "START": 16} and "TILE 32 " in result.source
    assert result.log_ratio == pytest.approx(0.51, abs=0.01)
    screened = result.best_in("context=1024")[1]
    assert screened.pairs == 1 and screened.stderr is None and screened.sure < 0


@pytest.mark.slow
def test_class_winners_run_the_full_command(tmp_path: Path) -> None:
    """The quick command has one row per class, and that row prefers another tile than its class."""
    bench = split_case.BENCH.replace("        x = [", """\
        if "--quick" in sys.argv and (context, heads) not in ((8, 1), (1024, 3)): continue
        x = [""", 1)
    target = replace(TARGET, quick_command="python bench.py --quick", configs=("heads",))
    result = searched(tmp_path, target=target, repeats=3, bench_py=bench)
    gains = {trial.config["TILE"]: trial.by_class for trial in result.trials}
    assert gains[4]["heads=1"] > 0.15 and gains[256]["heads=3"] > 0.3
    assert {contender.config["TILE"] for contender in result.contenders} == {4, 256}
    assert {row_class.name: len(row_class.cells) for row_class in result.classes} == {
        "heads=1": 4,
        "heads=3": 4,
    }
    assert [result.best_in(name) for name in ("heads=1", "heads=3")] == [
        ({"TILE": 32}, ClassGain(config_class=name, gain=0.0, stderr=0.0))
        for name in ("heads=1", "heads=3")]


@pytest.mark.slow
@pytest.mark.parametrize(("fails_at", "trials"), [((4,), 3), ((3, 4), 2)])
def test_failing_default_keeps_earlier_trials(
        fails_at: tuple[int, ...], trials: int, tmp_path: Path) -> None:
    """The first failure costs one trial, the second ends the search."""
    runs = f"""
import pathlib
if "TILE 32" in open("total.c").read():
    done = pathlib.Path("runs")
    done.write_text((done.read_text() if done.exists() else "") + "x")
    if len(done.read_text()) in {fails_at}: sys.exit(7)
"""
    bench = split_case.BENCH.replace("library = ", f"{runs}library = ", 1)
    result = searched(tmp_path, bench_py=bench)
    assert len(result.trials) == trials and result.best == {"TILE": 32}
    assert any("exited with 7" in note for note in result.notes), result.notes


def test_cancelled_search_returns_its_trials(tmp_path: Path) -> None:
    ended = threading.Event()
    result = searched(tmp_path, cancel=ended, on_trial=lambda trial: ended.set(), repeats=3)
    assert len(result.trials) == 1 and result.best == {"TILE": 32} and result.contenders == ()


REFUSED = {
    "no knob": ({"total_c": "int none;\n"}, {"only": ()},
                "the source declares no knob"),
    "no such knob": ({}, {"only": ("SIZE",)}, "no knob 'SIZE'"),
    "no budget": ({}, {"budget": 0}, "a budget of 1"),
    "a seed below zero": ({}, {"seed": -1}, "a number from 0"),
    "two repeats": ({}, {"repeats": 2}, "needs 3 runs or more"),
    "no source": ({}, {"target": replace(TARGET, source="")}, "no source is named"),
    "a default that does not build": (
        {"total_c": split_case.KERNEL.replace("int taken;", "")}, {}, "does not build"),
    "a benchmark that fails": (
        {"bench_py": "raise SystemExit('no luck')"}, {}, "own benchmark: exited with 1: no luck"),
    "a default that is wrong": (
        {"total_c": split_case.KERNEL.replace("? x[i]", "? 2 * x[i]")}, {}, "err is '1'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_search_is_refused(name: str, tmp_path: Path) -> None:
    files, args, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        searched(tmp_path, **files, **args)


def test_linked_source_is_refused(tmp_path: Path) -> None:
    tree = project(tmp_path / "tree")
    (tree / "total.c").rename(tmp_path / "total.c")
    (tree / "total.c").symlink_to(tmp_path / "total.c")
    with pytest.raises(HarnessFault, match="is a symbolic link"):
        harness_client.loop(ReportedLoopRequest(
            target=TARGET, device="cpu", settings=Settings(scratch=str(tmp_path / "s")),
            job=SearchJob(tree=str(tree), reference="", budget=3)))
    assert (tmp_path / "total.c").read_text() == split_case.KERNEL


class Listed:
    """A strategy that proposes consecutive numbers and records the scores that it receives."""

    def __init__(self, start: int) -> None:
        self.start, self.asked, self.told = start, 0, list[tuple[Any, float | None]]()

    def ask(self) -> Config | None:
        self.asked += 1
        return {"T": self.start + self.asked}

    def planned(self) -> list[Config]:
        return []

    def tell(self, config: Config, score: float | None) -> None:
        self.told.append((config["T"], score))


def test_classes_get_turns_and_all_strategies_learn() -> None:
    made: list[Listed] = []

    def make() -> Listed:
        made.append(Listed(100 * len(made)))
        return made[-1]

    rota = RoundRobin(make)
    rota.search_classes(("a", "b"))
    for number in range(FIRST_FOR_ALL + 8):
        config = rota.ask()
        assert config is not None
        rota.tell(config, 0.1 * number, {"a": 1.0, "b": 2.0})
    whole, a, b = made
    assert [strategy.asked for strategy in made] == [FIRST_FOR_ALL + 4, 2, 2]
    assert [told for told, _ in whole.told] == [told for told, _ in a.told]
    assert {score for _, score in a.told} == {1.0} and {score for _, score in b.told} == {2.0}


def test_single_class_gets_no_strategy_of_its_own() -> None:
    made: list[Listed] = []
    rota = RoundRobin(lambda: made.append(Listed(0)) or made[-1])  # type: ignore[func-returns-value]
    rota.search_classes(("all",))
    assert len(made) == 1


def trial(number: int, overall: float, **by_class: float) -> Trial:
    return Trial(number=number, config={"T": number}, correctness="PASS" if by_class else "FAIL",
                 tag="tried" if by_class else "revert", log_ratio=overall if by_class else None,
                 by_class=by_class)


CHOSEN = {
    "who leads a class": (
        [trial(0, 0, a=0, b=0), trial(1, .2, a=.3, b=.1), trial(2, 0, a=-.3, b=.3)], 1, [0, 2]),
    "the default alone is compared where it leads": (
        [trial(0, 0, a=0, b=0), trial(1, .1, a=.3, b=-.1)], 1, [0]),
    "nobody but the best leads": ([trial(0, 0, a=0, b=0), trial(1, .2, a=.2, b=.2)], 1, []),
    "the default is best": ([trial(0, 0, a=0, b=0), trial(1, -.2, a=.2, b=-.6)], 0, [1]),
    "what failed leads nothing": ([trial(0, 0, a=0, b=0), trial(1, 9)], 0, []),
    "who gains most is first": (
        [trial(0, 0, a=0, b=0), trial(1, 0, a=.1, b=-1), trial(2, 0, a=-1, b=.2)], 0, [2, 1]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_finalists_are_default_and_class_leaders(name: str) -> None:
    trials, best, expected = CHOSEN[name]
    contenders = finals.choose_contenders(trials, trials[best], ["a", "b"])
    assert [contender.number for contender in contenders] == expected
    shown = finals.screened_contenders(contenders, trials[best], ["a", "b"])
    assert [contender.config["T"] for contender in shown] == expected

"""A loop on a real C kernel records every trial, also failures, and resumes from its record."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.devices import inventory
from harness.errors import InputError, Refused
from harness.isolation import device_lock
from harness.isolation.device_lock import DeviceLock
from harness.loop import loop as harness_loop
from harness.loop.loop import loop
from harness.loop.screen_methods import PairScreening
from harness.loop.screening import Screening
from harness.roofline import ceilings
from harness.roofline.ceilings import Ceilings, Level
from harness.runners.session import Session
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space.tunable_source import Observation, Space, TunableSource
from harness.search.strategy import Strategy
from harness.search.trials import corpus, trial_log
from harness.search.trials.trial_log import Recorder
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.tasks.target import ConfigClass
from tests.support.kernels.c_case import HEAD, REFERENCE, RIGHT, kernel, target, tree

KNOBS = "#define MODE 0  // kopt: knob MODE in [0, 1, 2, 3, 4, 5]\n" + HEAD + f"""
#if MODE == 3
#error "three is not to be"
#endif
    if (MODE == 0) for (int64_t i = 0; i < n; i++) {{
        float v = x[i];
        for (int k = 0; k < 4; k++) v = v / 3.0f * 3.0f;
        out[i] = 2 * v;
    }}
    else if (MODE == 1) {{ {RIGHT} }}
    else if (MODE == 2) abort();
    else if (MODE == 4) for (int64_t i = 0; i < n; i++) out[i] = 3 * x[i];
    else for (;;) pause();
}}
"""
REASONS = {2: "crashed (SIGABRT)", 3: "three is not to be", 4: "wrong result on class even",
           5: "ran past its limit of 6 s"}
ONE_CLASS = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


def search(tmp_path: Path, source: str, *, seen: list[Trial] | None = None,
           cancel: threading.Event | None = None, **job: object) -> LoopResult:
    folder = tree(tmp_path / "tree", source, REFERENCE)
    return loop(ONE_CLASS, SearchJob(tree=folder, reference=folder, **job),  # type: ignore[arg-type]
                inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch"), wall_s=6.0),
                on_trial=(seen if seen is not None else []).append, cancel=cancel)


def test_no_process_of_the_baseline_outlives_a_trial(tmp_path: Path) -> None:
    """Such a process would keep the card's lock, so other measurements would wait for ever."""
    inexact = "#define MODE 0  // kopt: knob MODE in [0, 1]\n" + HEAD + \
        "    for (int64_t i = 0; i < n; i++) out[i] = (MODE ? 1.9998f : 2.0002f) * x[i];\n}\n"
    folder = tree(tmp_path / "tree", inexact, REFERENCE)
    with Screening(ONE_CLASS, SearchJob(tree=folder, reference=folder), inventory.find("cpu"),
                   Settings(scratch=str(tmp_path / "scratch"), wall_s=6.0),
                   TunableSource.parse(inexact, language="c")) as screening:
        screened = screening.measure({"MODE": 1})
        assert screened.correctness == "PASS", screened
        assert isinstance(screening.method, PairScreening)
        baseline = screening.method._tolerance.baseline
        assert baseline._errors and baseline._peer is None


def test_loop_reports_its_wait_and_tries_the_default_with_a_budget_of_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    folder, waits = tree(tmp_path / "tree", KNOBS, REFERENCE), list[str]()
    held, reported = threading.Event(), threading.Event()
    lock = Session.lock

    def hold() -> None:
        with device_lock.acquire("cpu"):
            held.set()
            reported.wait(60)

    def lock_held_by_another(self: Session, *args: Any) -> DeviceLock:
        if not held.is_set():
            threading.Thread(target=hold).start()
            held.wait(60)
        return lock(self, *args)

    monkeypatch.setattr(Session, "lock", lock_held_by_another)
    result = loop(
        ONE_CLASS, SearchJob(tree=folder, reference=folder, budget=1), inventory.find("cpu"),
        Settings(scratch=str(tmp_path / "scratch"), wall_s=6.0),
        on_wait=lambda text: (waits.append(text), reported.set())[0])
    reported.set()
    assert [trial.config for trial in result.trials] == [{"MODE": 0}], "the default comes first"
    assert (result.best, result.source) == ({"MODE": 0}, KNOBS)
    assert waits[0].startswith(f"waiting for cpu: held by process {os.getpid()} since ")


def test_loop_tries_every_configuration_and_returns_the_best_source(tmp_path: Path) -> None:
    seen: list[Trial] = []
    result = search(tmp_path, KNOBS, seen=seen, budget=20, seed=3)
    assert result.trials == tuple(seen)
    assert [trial.number for trial in seen] == list(range(6))
    assert seen[0].config == {"MODE": 0} and seen[0].correct
    assert seen[0].log_ratio is not None and seen[0].log_ratio < 0.3
    by_mode = {trial.config["MODE"]: trial for trial in seen}
    assert set(by_mode) == set(range(6)) and result.space_size == 6
    for mode, reason in REASONS.items():
        assert not by_mode[int(mode)].correct and by_mode[mode].log_ratio is None
        assert reason in by_mode[mode].reason and "\n" not in by_mode[mode].reason
    assert result.best == {"MODE": 1}
    assert result.log_ratio is not None and result.log_ratio > 0.3
    assert result.source == KNOBS.replace("MODE 0 ", "MODE 1 ")
    assert (tmp_path / "tree" / "twice.c").read_text() == KNOBS  # the tree itself is not touched
    assert [trial.kept for trial in seen if trial.config["MODE"] in (0, 1)] == [True, True]
    assert {mode: (trial.correctness, trial.tag) for mode, trial in by_mode.items()} == {
        0: ("PASS", "kept"), 1: ("PASS", "kept"), 2: ("FAIL", "revert"),
        3: ("REJECTED", "rejected"), 4: ("FAIL", "revert"), 5: ("FAIL", "revert")}
    for trial in seen:
        assert (trial.latency_us is not None) == (trial.latency_kind == "measured-cpu") \
            == trial.correct == (trial.pct_of_roofline is not None)
    assert len({trial.candidate_id for trial in seen}) == 6
    assert len({trial.kernel_id for trial in seen}) == 1 and seen[0].at.endswith("Z")


def test_default_is_returned_if_no_configuration_is_correct(tmp_path: Path) -> None:
    source = KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[2, 4]").replace("MODE 0 ", "MODE 4 ")
    result = search(tmp_path, source, budget=5)
    assert [trial.correct for trial in result.trials] == [False, False]
    assert (result.best, result.log_ratio, result.source) == ({"MODE": 4}, None, source)


def test_stopped_loop_returns_its_trials(tmp_path: Path) -> None:
    cancel = threading.Event()

    class Seen(list[Trial]):
        def append(self, trial: Trial) -> None:
            super().append(trial)
            threading.Timer(0.05, cancel.set).start()  # during the second trial

    seen = Seen()
    result = search(tmp_path, KNOBS, budget=6, cancel=cancel, seen=seen)
    assert [trial.config for trial in result.trials] == [{"MODE": 0}] == [t.config for t in seen]
    assert result.source == KNOBS


BAD = [
    (kernel(RIGHT), {"budget": 3}, "the source declares no knob"),
    (KNOBS, {"budget": 0}, "a budget of 1 to 100000 trials"),
    (KNOBS, {"budget": 3, "only": ("TILE",)}, "no knob 'TILE' in the source"),
    (KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[]"), {"budget": 3}, "'MODE' has no choices"),
    (KNOBS.replace("MODE 0 ", "MODE 3 "), {"budget": 3}, "does not compile: .*three is not to be"),
]


@pytest.mark.parametrize(("source", "job", "message"), BAD)
def test_invalid_source_or_job_is_refused(source: str, job: dict[str, object], message: str,
                                          tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        search(tmp_path, source, **job)  # type: ignore[arg-type]


def recorded(tmp_path: Path, **job: object) -> LoopResult:
    return search(tmp_path, KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[0, 1, 3, 4]"), seed=3,
                  record=str(tmp_path / "record"), corpus=str(tmp_path / "corpus.jsonl"), **job)


def test_loop_resumes_from_its_record(tmp_path: Path) -> None:
    first = recorded(tmp_path, budget=2)
    assert recorded(tmp_path, budget=2).trials == first.trials  # nothing is measured again
    whole = recorded(tmp_path, budget=9)
    assert whole.trials[:2] == first.trials and (first.earlier, whole.earlier) == (0, 2)
    assert [trial.number for trial in whole.trials] == [0, 1, 2, 3]
    assert {trial.config["MODE"] for trial in whole.trials} == {0, 1, 3, 4}
    assert whole.best == {"MODE": 1}
    for name in ("record/results.tsv", "record/trials.jsonl"):
        assert len((tmp_path / name).read_text().splitlines()) == 5
    records = corpus.read(tmp_path / "corpus.jsonl").records
    assert [(record.config, record.latency_us, record.reason) for record in records] == [
        (trial.config, trial.latency_us, trial.reason) for trial in whole.trials]

    fresh = recorded(tmp_path, budget=1, fresh=True)
    assert fresh.earlier == 0 and fresh.trials[0].at >= whole.trials[0].at
    assert len(fresh.trials) == 1
    away = tmp_path / "record" / "earlier-1"
    assert sorted(path.name for path in away.iterdir()) == ["results.tsv", "trials.jsonl"]
    assert len((away / "trials.jsonl").read_text().splitlines()) == 5
    with pytest.raises(InputError, match="the trials of another loop"):
        recorded(tmp_path, budget=1, only=("MODE",))


def test_unwritable_corpus_and_table_are_noted_once(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").mkdir()
    (tmp_path / "record" / "results.tsv").mkdir(parents=True)
    result = recorded(tmp_path, budget=2)
    assert len(result.trials) == 2
    assert sorted(note.split(":")[0].replace(str(tmp_path), "") for note in result.notes) == [
        "cannot read /corpus.jsonl", "cannot write /corpus.jsonl",
        "cannot write /record/results.tsv"]
    with pytest.raises(OSError):
        search(tmp_path, KNOBS, budget=1, record=str(tmp_path / "tree" / "twice.c"))


def test_resumed_loop_gets_the_same_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Observation, ...]] = []

    def strategy(space: Space, seed: int, history: tuple[Observation, ...]) -> Strategy:
        given.append(history)
        return BayesianSearch(space, seed)

    monkeypatch.setattr(harness_loop, "strategy_for", strategy)
    search(tmp_path, KNOBS, budget=1, corpus=str(tmp_path / "corpus.jsonl"))
    (tmp_path / "corpus.jsonl").open("a").write("torn\n")
    for budget in (1, 2):
        result = search(tmp_path, KNOBS, budget=budget, record=str(tmp_path / "record"),
                        corpus=str(tmp_path / "corpus.jsonl"))
    assert given[0] == () and given[1] == given[2] and len(given[1]) == 1
    assert given[1][0].config == {"MODE": 0}
    assert "1 torn line left out" in result.notes[0]


def test_impossible_latency_is_withheld_and_never_kept(tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Ceilings(gflops=1.0, levels=(Level(1e18, 1e-6),), copy_gb_per_s=1e-6)
    monkeypatch.setattr(ceilings, "of_cpu", lambda name, folder: slow)
    source = KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[0, 1]")
    result = search(tmp_path, source, budget=2)
    assert (result.best, result.log_ratio, result.source) == ({"MODE": 0}, None, source)
    for trial in result.trials:
        assert (trial.correctness, trial.tag, trial.latency_us) == ("PASS", "tried", None)
        assert "latency withheld: class even: " in trial.reason and trial.withheld


def recorder(folder: Path, loop: str, corpus: str = "") -> Recorder:
    job = SearchJob(tree="", reference="", record=str(folder), corpus=corpus)
    return Recorder(target(), job, inventory.find("cpu"), (), loop, lambda note: None)


def test_record_cannot_be_opened_twice_at_once_or_by_another_loop(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_log, "LET_GO_S", 0.1)
    with recorder(tmp_path / "record", "a"), pytest.raises(Refused, match="another loop is"):
        recorder(tmp_path / "record", "a")
    (tmp_path / "corpus").write_bytes(b"trials\n")
    with recorder(tmp_path / "record", "a", str(tmp_path / "corpus")) as again:
        assert again.advised_by == 0  # the size when the record was created
    with pytest.raises(InputError, match="of another loop"):
        recorder(tmp_path / "record", "b")


@pytest.mark.parametrize("torn", [b"", b"{", b'{"type":"loop","lo', b"\xff\x00", b"\n\n", b"[]"])
def test_record_with_a_torn_first_line_starts_empty(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / trial_log.TRIALS).write_bytes(torn)
    with recorder(tmp_path, "a") as book:
        assert book.earlier == () and bool(book.notes) == bool(torn.strip())
    with recorder(tmp_path, "a") as book:
        assert book.earlier == ()

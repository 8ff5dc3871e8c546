"""The knob loop on a real C kernel: its trials are recorded, its failures are trials too."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness import devices
from harness.errors import InputError
from harness.evaluate import Settings
from harness.loop import Job, LoopResult, Trial, loop
from harness.target import ConfigClass
from tests.c_case import HEAD, REFERENCE, RIGHT, kernel, target, tree

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
    else for (;;) ;
}}
"""
REASONS = {2: "crashed (SIGABRT)", 3: "three is not to be", 4: "wrong result on class even",
           5: "ran past its limit of 2 s"}
ONE = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


def search(tmp_path: Path, source: str, *, seen: list[Trial] | None = None,
           cancel: threading.Event | None = None, **job: object) -> LoopResult:
    folder = tree(tmp_path / "tree", source, REFERENCE)
    return loop(ONE, Job(tree=folder, reference=folder, **job),  # type: ignore[arg-type]
                devices.find("cpu"), Settings(scratch=str(tmp_path / "scratch"), wall_s=2.0),
                on_trial=(seen if seen is not None else []).append, cancel=cancel)


def test_a_loop_tries_everything_and_writes_the_best_back(tmp_path: Path) -> None:
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


def test_a_budget_of_one_is_the_default(tmp_path: Path) -> None:
    result = search(tmp_path, KNOBS, budget=1)
    assert [trial.config for trial in result.trials] == [{"MODE": 0}]
    assert (result.best, result.source) == ({"MODE": 0}, KNOBS)


def test_where_nothing_works_the_default_stays(tmp_path: Path) -> None:
    source = KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[2, 4]").replace("MODE 0 ", "MODE 4 ")
    result = search(tmp_path, source, budget=5)
    assert [trial.correct for trial in result.trials] == [False, False]
    assert (result.best, result.log_ratio, result.source) == ({"MODE": 4}, None, source)


def test_a_loop_that_is_stopped_returns_what_it_has(tmp_path: Path) -> None:
    cancel = threading.Event()

    class Seen(list[Trial]):
        def append(self, trial: Trial) -> None:
            super().append(trial)
            threading.Timer(0.05, cancel.set).start()  # in the midst of the second trial

    seen = Seen()
    result = search(tmp_path, KNOBS, budget=6, cancel=cancel, seen=seen)
    assert [trial.config for trial in result.trials] == [{"MODE": 0}] == [t.config for t in seen]
    assert result.source == KNOBS


BAD = [
    (kernel(RIGHT), {"budget": 3}, "the source declares no knob"),
    (KNOBS, {"budget": 0}, "a budget of at least one trial"),
    (KNOBS, {"budget": 3, "only": ("TILE",)}, "no knob 'TILE' in the source"),
    (KNOBS.replace("[0, 1, 2, 3, 4, 5]", "[]"), {"budget": 3}, "'MODE' has no choices"),
    (KNOBS.replace("MODE 0 ", "MODE 3 "), {"budget": 3}, "does not compile: .*three is not to be"),
]


@pytest.mark.parametrize(("source", "job", "message"), BAD)
def test_what_cannot_be_searched_is_refused(source: str, job: dict[str, object], message: str,
                                            tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        search(tmp_path, source, **job)  # type: ignore[arg-type]

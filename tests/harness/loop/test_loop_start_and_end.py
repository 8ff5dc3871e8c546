"""A loop tries the default before it plans, reports when nothing works, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.loop.loop import nothing_worked
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space.tunable_source import Space, TunableSource
from harness.search.strategy import AskTell, PredictedOrder, Strategy, Sweep
from harness.search.trials.trials import Trial
from harness.verdict import Config
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import kopt
from tests.support.searches.trial_case import SPACE, tried

KERNEL = campaigns.KERNEL.replace("in [1, 16] times", f"in {list(range(1, 17))} times")


class Eager(AskTell):
    """Asks its strategy before it returns the default, as AskTell did in earlier versions."""

    def next(self) -> Config | None:
        if not self._seen:
            self._waiting.extend(filter(None, [self._strategy.ask()]))
        return super().next()


def lazy_and_eager(seed: int, guided: bool) -> tuple[AskTell, AskTell]:
    """Return a lazy and an eager search by one strategy, which predictions order if `guided`."""
    def strategy() -> Strategy:
        made = BayesianSearch(SPACE, seed)
        return (
            PredictedOrder(made, lambda configs: [float(str(config["A"])) for config in configs])
            if guided
            else made
        )

    return AskTell(strategy(), SPACE), Eager(strategy(), SPACE)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 17))
def test_asking_the_strategy_later_changes_no_trial(seed: int, guided: bool,
                                                    killed_after: int) -> None:
    lazy, eager = lazy_and_eager(seed, guided)
    whole = tried(lazy, 17)
    assert whole == tried(eager, 17) and len(whole) == SPACE.size
    again, _ = lazy_and_eager(seed, guided)
    again.replay(whole[:killed_after])
    assert whole[:killed_after] + tried(again, 99, min(killed_after, len(whole))) == whole


class RecordingStrategy:
    """Records its calls; the default is the second configuration that it proposes."""

    def __init__(self, space: Space) -> None:
        self.calls: list[str] = []
        self.left: list[Config] = [{**space.default, "A": 8}, dict(space.default),
                                   {**space.default, "A": 4}]

    def ask(self) -> Config | None:
        self.calls.append("ask")
        return self.left.pop(0) if self.left else None

    def planned(self) -> list[Config]:
        return list(self.left)

    def tell(self, config: Config, score: float | None) -> None:
        self.calls.append(f"tell {config['A']}")


def test_default_comes_before_the_strategy_is_asked() -> None:
    strategy = RecordingStrategy(SPACE)
    walk = AskTell(strategy, SPACE)
    assert walk.next() == SPACE.default and strategy.calls == []
    assert [trial["A"] for trial in walk.planned()] == [8, 4]  # the default is being tried
    walk.tell(Trial(number=0, config=dict(SPACE.default), correctness="FAIL", tag="revert"))
    assert (walk.next() or {})["A"] == 8 and strategy.calls == ["tell 2", "ask"]
    assert (walk.next() or {})["A"] == 4 and walk.next() is None


def failed(number: int, config: Config, reason: str = "wrong") -> Trial:
    return Trial(number=number, config=config, correctness="FAIL", tag="revert", reason=reason)


def test_note_states_why_the_default_failed() -> None:
    nasty = failed(0, {"A": 1}, "bad\x1b[31m red\r\nresult\u202e " + "9" * 5000)
    note = nothing_worked((nasty, failed(1, {"A": 2})), {"A": 1})
    assert note.startswith("no configuration worked; the default: bad red result 999")
    assert note.isprintable() and len(note) < 600
    assert nothing_worked((), {"A": 1}) == ""
    passed = Trial(number=1, config={"A": 2}, correctness="PASS", tag="kept")
    assert nothing_worked((nasty, passed), {"A": 1}) == ""
    assert nothing_worked((failed(0, {"A": 1}, ""),), {"A": 1}) == \
        "no configuration worked; the default: FAIL"


@pytest.mark.slow  # as a command; test_loop.py tests the loop itself
def test_command_reports_that_nothing_worked(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", kernel=campaigns.KERNEL.replace(
        "2.0f;", "3.0f;"))
    done = kopt("loop", str(manifest), "--budget", "1", "--json", workspace=tmp_path / "w")
    reported = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert reported["trials"][0]["correctness"] == "FAIL" and reported["best"]["PASSES"] == 16
    reason = reported["trials"][0]["reason"]
    assert f"no configuration worked; the default: {reason}" in reported["notes"]
    assert f"the default: {reason}" in done.stderr


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_terminated_loop_answers_and_leaves_no_process(times: int, tmp_path: Path) -> None:
    """The command `timeout` sends the signal twice: to the process and to its group."""
    manifest = campaigns.project(tmp_path / "p", kernel=KERNEL)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "loop", str(manifest), "--budget", "16", "--json",
         "--workspace", str(tmp_path / "w")], text=True, cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)})
    campaigns.until(lambda: process.poll() is not None or any(
        path.read_text().count("\n") > 1 for path in tmp_path.glob("w/loops/*/trials.jsonl")))
    assert list(scratch.glob("kopt-*"))
    for _ in range(times):
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    answer = json.loads(out)
    assert process.returncode == 130 and answer["stopped"] and answer["verdict"] is None, err
    assert answer["trials"] and "repeat the command to continue" in err.splitlines()[-1]
    assert not list(scratch.glob("kopt-*")) and "Traceback" not in err


def test_loop_terminated_before_its_first_trial_leaves_no_process(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", kernel=KERNEL)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "loop", str(manifest), "--json", "--workspace",
         str(tmp_path / "w")], text=True, cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)})
    campaigns.until(lambda: process.poll() is not None or list(scratch.glob("kopt-*")))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and json.loads(out)["stopped"], err
    assert not list(scratch.glob("kopt-*"))


def test_sweep_tries_every_valid_configuration_starting_with_the_default() -> None:
    """If the budget suffices for every valid configuration, all can be compiled ahead."""
    source = TunableSource.parse(
        "#define A 2  // kopt: knob A in [1, 2, 4]\n#define B 1  // kopt: knob B in [1, 2]\n"
        "// kopt: require A * B <= 4\n", language="c")
    swept = source.configurations((), 5)
    assert len(swept) == 5 and swept[0] == {"A": 2, "B": 1} and {"A": 4, "B": 2} not in swept
    assert source.configurations((), 4) == ()
    walk = AskTell(Sweep(swept), source.space())
    assert [walk.next(), walk.next()] == list(swept[:2])
    assert walk.planned() == list(swept[2:])
    assert [walk.next() for _ in range(4)] == [*swept[2:], None]

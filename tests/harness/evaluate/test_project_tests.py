"""A candidate that fails the project's own tests is rejected and not timed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.isolation import guard
from tests.support.kernels.c_case import FAST, QUICK, Bench, judge, target

ONE_CLASS = replace(target(), classes=target().classes[:1])
SHORT = replace(QUICK, looks=(2,))
OVERWRITE = "true" if guard.confinement_problem() else "sh -c 'echo bad > {file} || true'"


def test_candidate_that_passes_the_tests_is_timed_and_the_tests_cannot_change_it(
        tmp_path: Path) -> None:
    source = tmp_path / "candidate" / "twice.c"
    verdict = judge(tmp_path, FAST, task=ONE_CLASS, plan=SHORT, test_command=(
        "grep -q twice twice.c && A=1 sh -c 'test $A = 1' && touch built && test -w $HOME && "
        f"{OVERWRITE.format(file=source)}"))
    assert verdict.correct and verdict.latency_us, verdict
    assert not source.with_name("built").exists() and source.read_text() == FAST


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), ONE_CLASS)
    yield made
    made.oracle.close()


FAILING = {
    "an exit code": ("sh -c 'echo collected; echo 1 failed; echo; exit 1'", "1 failed"),
    "a traceback": (f"{sys.executable} -c 'assert 1 == 2, \"no\"'", "AssertionError: no"),
    "a signal": ("sh -c 'kill -9 $$'", "crashed (SIGKILL)"),
    "no such program": ("no-such-program-anywhere", "no-such-program-anywhere"),
    "bad quotes": ("sh 'a", "not well quoted"),
    "silent": ("false", "exited with 1"),
}


@pytest.mark.parametrize("name", FAILING)
def test_candidate_that_fails_the_tests_is_rejected(name: str, bench: Bench) -> None:
    command, reason = FAILING[name]
    verdict = bench.judge(FAST, plan=SHORT, test_command=command)
    assert not verdict.valid and verdict.latency_us is None
    assert (verdict.rejected_reason or "").startswith("the project's own tests fail: ")
    assert reason in (verdict.rejected_reason or "")


def test_hanging_test_is_a_failure(bench: Bench) -> None:
    verdict = bench.judge(FAST, plan=SHORT, test_command="sleep 100", test_wall_s=1.0)
    assert "ran past its limit of 1 s" in (verdict.rejected_reason or "")

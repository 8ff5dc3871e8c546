"""Whole programs: the number that they print, and runs within a time budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.spec.command_target import EndToEndTarget, Metric
from harness.benchmark.verdict.whole_program import (
    LEFT_OUT,
    RUNS,
    TimeBudget,
    measure_end_to_end,
    value_in,
)
from harness.devices import inventory
from harness.errors import InputError
from harness.settings import Settings, Trees
from harness.verdict import Verdict


@pytest.mark.parametrize(("text", "name", "value"), [
    ("tokens/s: 41.2\n", "tokens/s", 41.2),
    ("warm-up tokens/s: 3\nthen tokens/s = 4e1\n", "tokens/s", 40.0),
    ('{"loss": 2.5, "step_ms": 12}', "step_ms", 12.0),
    ("step_ms 7 ms\n", "step_ms", 7.0),
    ("it took step_ms: 41.2.", "step_ms", 41.2)])
def test_last_number_after_the_name_counts(text: str, name: str, value: float) -> None:
    assert value_in(text, name) == value


@pytest.mark.parametrize("text", ["", "mytokens/s: 3", "tokens/s: fast", "tokens/s: -1",
                                  "tokens/s: 0", "tokens/s: 1.2.3", "tokens/s: 9,999",
                                  "tokens/s: 1,234.5"])
def test_missing_or_nonpositive_number_is_a_fault(text: str) -> None:
    with pytest.raises(BenchmarkFault):
        value_in(text, "tokens/s")


def judged(folder: Path, candidate: str, incumbent: str, metric: Metric | None) -> Verdict:
    for side, text in (("candidate", candidate), ("incumbent", incumbent)):
        (folder / side).mkdir()
        (folder / side / "program.py").write_text(text)
    return measure_end_to_end(EndToEndTarget(command="python program.py", metric=metric),
                              Trees(candidate=str(folder / "candidate"), reference="",
                                    incumbent=str(folder / "incumbent")),
                              inventory.find("cpu"), Settings(scratch=str(folder / "scratch")))


def test_slower_program_is_reported(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "print('step_ms: 11')", "print('step_ms: 10')",
                     Metric(name="step_ms"))
    assert verdict.latency_kind == "reported" and verdict.latency_us == pytest.approx(11_000)
    assert verdict.speedup == pytest.approx(10 / 11)
    assert verdict.rows[0].outcome == "slower" and verdict.rows[0].pairs == 3


@pytest.mark.slow
def test_wall_time_counts_without_a_metric(tmp_path: Path) -> None:
    spin = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"
    verdict = judged(tmp_path, spin.format(0.05), spin.format(1.0), None)
    assert (verdict.speedup or 0.0) > 1.5, verdict


def test_program_that_fails_only_with_the_best_candidate_is_rejected(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "raise SystemExit(3)", "print('step_ms: 10')",
                     Metric(name="step_ms"))
    assert not verdict.valid and "exited with 3" in (verdict.rejected_reason or "")


def test_program_that_fails_without_the_best_candidate_is_bad_input(tmp_path: Path) -> None:
    for candidate in ("print('step_ms: 10')", "raise SystemExit(3)"):
        folder = tmp_path / str(len(candidate))
        folder.mkdir()
        with pytest.raises(InputError, match="e2e_command: also fails without the best"):
            judged(folder, candidate, "print('nothing')", Metric(name="step_ms"))


def program(folder: Path, left_s: float, seconds: float) -> Verdict:
    """Judge a program that takes `seconds`, with `left_s` for all of its runs."""
    for side in ("candidate", "incumbent"):
        (folder / side).mkdir()
        (folder / side / "program.py").write_text(
            f"import time; time.sleep({seconds}); print('step_ms: 10')")
    return measure_end_to_end(
        EndToEndTarget(command="python program.py", metric=Metric(name="step_ms"), left_s=left_s),
        Trees(
            candidate=str(folder / "candidate"), reference="", incumbent=str(folder / "incumbent")
        ),
        inventory.find("cpu"),
        Settings(scratch=str(folder / "scratch")),
    )


@pytest.mark.slow
def test_little_time_means_fewer_runs(tmp_path: Path) -> None:
    verdict = program(tmp_path, 5.0, 1.0)
    [row] = verdict.rows
    assert verdict.correct and row.pairs < RUNS and verdict.wall_s < 6
    assert "whole run" in verdict.notes[0] and \
        f"not {RUNS}, because the time limit was 5 s and one run takes up to " in verdict.notes[0]
    if row.pairs == 1:  # one pair gives no interval
        assert (row.outcome, row.low, verdict.speedup_low) == ("unmeasured", None, None)


@pytest.mark.parametrize(("left_s", "seconds"), [(1.5, 1.0), (1.0, 30.0)])
def test_no_time_for_one_pair_is_reported(tmp_path: Path, left_s: float,
                                          seconds: float) -> None:
    verdict = program(tmp_path, left_s, seconds)
    assert [entry.kind for entry in verdict.evidence] == [LEFT_OUT] and verdict.wall_s < left_s + 2
    assert (verdict.rejected_reason or "").startswith(
        f"not run: the time limit was {left_s:.0f} s and one run takes up to ")


def test_time_budget_uses_the_longest_run() -> None:
    now = [0.0]
    budget = TimeBudget(10.0, lambda: now[0])
    assert budget.holds(2)
    budget.run(lambda: now.__setitem__(0, 4.0))
    assert budget.longest_s == 4.0 and budget.holds(1) and not budget.is_full
    assert not budget.holds(2) and budget.is_full
    assert budget.description == "the time limit was 10 s and one run takes up to 4 s"
    assert TimeBudget(None).holds(1000)

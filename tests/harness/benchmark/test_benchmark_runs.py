"""Verdicts from whole runs of a project's benchmark: every fault has a kind, gains are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.benchmark.runs.command_session import BenchmarkSession
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.benchmark.verdict.confirm_gain import Confirmation
from harness.errors import InputError
from harness.isolation import device_lock, guard
from harness.timing.plan import Plan
from harness.verdict import OWN_TIMES, Verdict
from tests.support.benchmarks.benchmark_case import judge, kernel, target


def fault(verdict: Verdict) -> str:
    return next(entry.detail for entry in verdict.evidence if entry.kind == "benchmark-fault")


def test_faster_candidate_is_faster_in_every_row_and_flagged(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0), candidate_id="c1", incumbent_tree="t1")
    assert verdict.valid and verdict.correct and verdict.latency_kind == "reported"
    assert {row.config_class for row in verdict.rows} == {
        "m=64 n=32", "m=128 n=32", "m=128 n=64", "m=256 n=64"}
    assert all(row.outcome == "faster" and row.pairs == 3 for row in verdict.rows)
    assert verdict.speedup == pytest.approx(2.0, rel=0.02)
    assert (verdict.speedup_low or 0) > 1.5
    [finding] = [found for found in verdict.audit if found.rule == OWN_TIMES]
    assert finding.severity == "flag"
    assert finding.detail.endswith("your first approval settles this for the campaign")
    assert (verdict.candidate_id, verdict.incumbent_tree) == ("c1", "t1")
    assert verdict.notes[0] == "latency_us is fwd_us + bwd_us, as the benchmark reports it"


@pytest.mark.slow
def test_cost_is_the_sum_of_both_metrics(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(100.0))
    row = next(row for row in verdict.rows if row.config_class == "m=64 n=32")
    assert row.incumbent_us == pytest.approx(3 * 6400, rel=0.01)
    assert not any(row.outcome == "faster" for row in verdict.rows) and not verdict.audit


@pytest.mark.slow
def test_failing_row_makes_the_score_0(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(10.0, "def err(m):\n    return 3 * (m == 256)\n"))
    assert verdict.valid and not verdict.correct and verdict.latency_us is None
    assert "m=256" in (verdict.rejected_reason or "")
    assert (verdict.rejected_reason or "").endswith(": err is '3', expected == 0")
    assert [(row.outcome, row.correct) for row in verdict.rows] == [("broken", False)]
    assert any(
        entry.kind == "score" and entry.detail.startswith("0:") for entry in verdict.evidence
    )


SPOILED = {
    "exit": ("raise SystemExit('out of luck')", "exited with 1: out of luck"),
    "crash": ("import os; os.kill(os.getpid(), 11)", "crashed (SIGSEGV)"),
    "output": ("while True: print('x' * 100000)", "printed more than"),
    "missing-file": ("def spoil(rows): return None", "wrote no bench.csv"),
    "stale-file": ("import os\ndef after(): os.utime('bench.csv', (0, 0))",
                   "bench.csv is from an earlier run"),
    "unreadable": ("def after(): open('bench.csv', 'wb').write(b'\\xff\\0')",
                   "bench.csv is not UTF-8 text"),
    "empty-table": ("def spoil(rows): return []", "bench.csv has a header and no rows"),
    "missing-column": ("def spoil(rows): return [{k: r[k] for k in r if k != 'bwd_us'} "
                       "for r in rows]", "bench.csv has no column 'bwd_us'"),
    "nan": ("def spoil(rows): return [{**r, 'fwd_us': 'nan'} for r in rows]", "fwd_us is NaN"),
    "not-a-number": ("def spoil(rows): return [{**r, 'fwd_us': 'n/a'} for r in rows]",
                     "fwd_us is 'n/a', not a number"),
    "not-positive": ("def spoil(rows): return [{**r, 'fwd_us': 0} for r in rows]",
                     "not a number above zero"),
    "duplicate-rows": ("def spoil(rows): return rows[:-1] + [{**rows[0], 'fwd_us': 9}]",
                       "have the same configuration: m="),
    "changed-rows": ("def spoil(rows): return [r for r in rows if r['m'] < 256]",
                     "has 3 rows, the incumbent has 4"),
}


QUICKLY = ("exit", "missing-file", "nan", "changed-rows")
"""Faults that the fast suite tests; the others use the same code."""


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=() if kind in QUICKLY else pytest.mark.slow) for kind in SPOILED])
def test_each_run_failure_has_its_kind(kind: str, tmp_path: Path) -> None:
    code, message = SPOILED[kind]
    verdict = judge(tmp_path, kernel(50.0, code + "\n"))
    assert not verdict.valid and not verdict.correct and verdict.latency_us is None
    assert message in (verdict.rejected_reason or ""), verdict
    assert fault(verdict) == kind and "\n" not in (verdict.rejected_reason or "")


@pytest.mark.slow
def test_changed_shapes_are_named(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(
        50.0, "def spoil(rows): return [{**r, 'm': 32} if r['m'] == 64 else r for r in rows]\n"))
    assert fault(verdict) == "changed-rows"
    assert "missing: m=64 n=32 dtype=fp16; new: m=32 n=32" in (verdict.rejected_reason or "")


def test_hanging_run_times_out(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0, "import time\ntime.sleep(1000)\n"),
                    wanted=target(timeout_s=1.0))
    assert fault(verdict) == "timeout"
    assert verdict.rejected_reason == "ran past its limit of 1 s"


def test_old_csv_does_not_count_as_result(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0, "def spoil(rows): return None\n"), files={
        "bench.csv": "m,n,dtype,at,err,fwd_us,bwd_us\n64,32,fp16,0,0,1,1\n"})
    assert verdict.rejected_reason == \
        "wrote no bench.csv (one from before the run was removed)"


def test_table_that_is_printed_instead_of_written_is_quoted(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(
        50.0, "def spoil(rows):\n    print('m,n,ms')\n    print('64,32,1.5')\n"))
    assert verdict.rejected_reason == (
        "wrote no bench.csv; the last line that it printed: '64,32,1.5' "
        "(a printed table can be redirected: COMMAND > bench.csv)")


def test_csv_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("m,n\n1,2\n")
    verdict = judge(tmp_path, kernel(50.0, (
        "import os\ndef after():\n    os.remove('bench.csv')\n"
        f"    os.symlink({str(secret)!r}, 'bench.csv')\n")))
    assert fault(verdict) == "unreadable"
    assert "is not a plain file" in (verdict.rejected_reason or "")
    assert secret.read_text() == "m,n\n1,2\n"


@pytest.mark.skipif(bool(guard.confinement_problem()), reason=guard.confinement_problem())
def test_candidate_cannot_write_to_other_trees(tmp_path: Path) -> None:
    other = tmp_path / "incumbent" / "kernel.py"
    verdict = judge(tmp_path, kernel(50.0, (
        f"try: open({str(other)!r}, 'w').write('COST = 1e9')\nexcept OSError: pass\n")))
    assert verdict.correct and verdict.speedup == pytest.approx(2.0, rel=0.02)


@pytest.mark.skipif(bool(guard.confinement_problem()), reason=guard.confinement_problem())
def test_runs_do_not_learn_which_side_they_are(tmp_path: Path) -> None:
    slow = "import os\nif 'incumbent' in os.getcwd() + os.environ['HOME']: COST *= 2\n"
    fast = "import glob\nif len(glob.glob('../../*')) > 1: COST = 1.0\n"
    verdict = judge(tmp_path, kernel(100.0, fast), incumbent=kernel(100.0, slow))
    assert verdict.correct and verdict.speedup == pytest.approx(1.0, rel=0.02)


LOGS = "def after():\n    open('log.txt', 'a').write('run\\n')\n"
REWRITES = LOGS + "    open('kernel.py', 'w').write('COST = 1.0\\ndef err(m):\\n    return 0\\n')\n"


@pytest.mark.parametrize(("more", "flags"), [(LOGS, []), (REWRITES, ["kernel.py"])])
def test_candidate_whose_runs_write_to_its_own_files_is_flagged(more: str, flags: list[str],
                                                                tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(100.0, more), incumbent=kernel(100.0, LOGS),
                    files={"log.txt": ""})
    assert verdict.correct
    assert [entry.detail.split()[4].strip(",") for entry in verdict.audit
            if entry.rule == "rewritten"] == flags, verdict.audit


def test_benchmark_that_fails_on_the_incumbent_raises(tmp_path: Path) -> None:
    with pytest.raises(BrokenIncumbent) as caught:
        judge(tmp_path, kernel(50.0), incumbent="raise SystemExit(7)\n")
    assert str(caught.value) == "the incumbent's own benchmark: exited with 7"
    assert caught.value.exit_code == 2


def test_failed_build_is_reported(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0, "this is not valid Python\n"),
                    wanted=target(build_command="mkdir -p o && python -m py_compile kernel.py"))
    assert fault(verdict) == "build"
    assert (verdict.rejected_reason or "").startswith("does not build: exited with 1: ")


def test_project_tests_run_before_the_benchmark(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0), test_command="python -c 'assert 1 == 2, \"no\"'",
                    wanted=target(command="sh -c 'touch /nowhere'"))
    assert verdict.rejected_reason == \
        "the project's own tests fail: exited with 1: AssertionError: no"


@pytest.mark.slow
@pytest.mark.parametrize("cost", [50.0, 97.0])
def test_quick_gain_is_judged_by_the_full_command(cost: float, tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(cost), wanted=target(quick_command="python bench.py --quick"))
    assert len(verdict.rows) == 4 and any("judged by the full one" in n for n in verdict.notes)
    assert verdict.speedup == pytest.approx(100 / cost, rel=0.02)


@pytest.mark.slow
def test_gain_under_2_percent_runs_three_more_pairs(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(98.6), plan=Plan(looks=(3, 4, 6), alpha=0.2, margin=0.005))
    counted = next(entry.detail for entry in verdict.evidence if entry.kind == "runs")
    said = [row.note for row in verdict.rows if "measured again" in row.note]
    assert said and int(counted.split()[0]) >= 6, verdict


@pytest.mark.slow
def test_quick_command_with_other_rows_is_refused_if_same_rows_is_set(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        judge(tmp_path, kernel(50.0), wanted=target(
            quick_command="python bench.py --quick", same_rows=True))
    assert caught.value.what.startswith(
        "the quick command has 2 rows, the full command has 4; missing: m=")


@pytest.mark.slow
def test_rows_with_equal_config_columns_are_one_class(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0), wanted=target(configs=("n",)))
    assert {row.config_class: row.weight for row in verdict.rows} == {"n=32": 2.0, "n=64": 2.0}


@pytest.mark.slow
def test_runs_that_write_equal_files_are_flagged(tmp_path: Path) -> None:
    made_up = "def spoil(rows): return sorted(({**r, 'at': 1, 'fwd_us': r['m'], 'bwd_us': r['n']} "\
        "for r in rows), key=str)\n"
    verdict = judge(tmp_path, kernel(50.0, made_up))
    assert any("3 runs of the candidate wrote only 1 different files" in finding.detail
               for finding in verdict.audit)


@pytest.mark.slow
def test_confirmation_removes_the_flag(tmp_path: Path) -> None:
    seen = []

    def confirm(session: BenchmarkSession, results: ModeResults) -> Confirmation:
        copies = {"incumbent", "candidate"} & session.copies.keys()
        seen.append((session.device.kind, copies, len(results.series.keys)))
        return Confirmation(finding=None)

    verdict = judge(tmp_path, kernel(50.0), confirm=confirm)
    assert seen == [("cpu", {"incumbent", "candidate"}, 4)] and not verdict.audit


def test_build_cannot_change_frozen_files(tmp_path: Path) -> None:
    """Benchmark and tests stay frozen in working copies, even if a build changes them there."""
    forge = kernel(50.0) + "if __name__ == '__main__':\n    open({!r}, 'w').write('')\n"
    for number, path in enumerate(("bench.py", "check.py")):
        verdict = judge(tmp_path / str(number), forge.format(path),
                        files={"check.py": "import kernel; assert not kernel.err(1)\n"},
                        wanted=target(build_command="python kernel.py",
                                      frozen=("bench.py", "check.py")),
                        test_command="python check.py")
        assert not verdict.valid
        assert verdict.rejected_reason == f"does not build: changes {path}, which is frozen"


def test_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    side = WorkingCopy("candidate", tmp_path / "tree", tmp_path / "side", CommandEnvironment())
    (side.tree / "a").symlink_to("b")
    (side.tree / "b").symlink_to("a")
    with device_lock.acquire("gpu-98") as held, \
            pytest.raises(BenchmarkFault, match="leads out of the project"):
        side.benchmark(BenchmarkMode(name="full", command="true", csv="a/bench.csv"), held)


def test_line_of_many_commas_is_refused(tmp_path: Path) -> None:
    spoil = ("\ndef spoil(rows):\n    open('bench.csv', 'w').write(',' * 3_000_000)\n")
    verdict = judge(tmp_path, kernel(more=spoil))
    assert "columns" in (verdict.rejected_reason or "")


KILLED = ("import os, pathlib\nmark = pathlib.Path('killed')\n"
          "if {again} or not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), 9)\n")
"""Ends itself by SIGKILL, as the out-of-memory killer of Linux would."""


def test_run_killed_once_is_repeated_also_below_a_shell(tmp_path: Path) -> None:
    dies = KILLED.format(again=False)
    verdict = judge(tmp_path, kernel(50.0, dies), incumbent=kernel(100.0, dies),
                    wanted=target(command="sh -c 'python bench.py; exit $?'"))
    assert verdict.correct and verdict.speedup == pytest.approx(2.0, rel=0.02)
    message = [note for note in verdict.notes if "was killed" in note]
    assert [note.partition(" was ")[0] for note in message] == [
        "a run of the incumbent", "a run of the candidate"]
    assert all(note.endswith(" and repeated") for note in message)


def test_run_killed_twice_is_rejected(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0, KILLED.format(again=True)))
    assert verdict.rejected_reason == "crashed (SIGKILL)" and fault(verdict) == "killed"

"""A generated harness is checked against the unpatched code, a broken copy and changed kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.generation import generated_harness, harness_checks
from engine.generation.generated_harness import LIMIT_S, KernelToBenchmark
from engine.generation.harness_checks import HarnessFindings
from harness.call_trace import weights
from harness.devices import inventory
from tests.support.agents import harness_case

MODES = ("correctness", "profile", "benchmark", "full-benchmark")


def check(root: Path, harness: str, traced: str = harness_case.TRACED, **limits: float
          ) -> HarnessFindings:
    project = harness_case.project(root)
    kernel = KernelToBenchmark(
        project=project, source="rmsnorm.c", entry="rmsnorm", device="cpu",
        traced=weights.parse(traced.encode(), "calls.csv") if traced else None)
    return harness_checks.check(kernel, harness.encode(),
                                root / "scratch", inventory.find("cpu"),
                                limit_s={**LIMIT_S, **limits})


def test_a_correct_harness_passes_its_four_modes_and_notices_wrong_kernels(tmp_path: Path) -> None:
    findings = check(tmp_path, harness_case.HARNESS)
    assert findings.fault == ""
    assert [*findings.passed] == [*MODES, "traced arguments", "broken source", "changed kernels"]
    assert findings.passed["changed kernels"].startswith("noticed")
    assert {"rows": "7", "cols": "33"} in findings.configurations


def test_options_whose_dashes_are_added_in_a_loop_are_recognised() -> None:
    text = "for name in 'correctness', 'profile', 'benchmark', 'full-benchmark', 'iterations':\n" \
        "    parser.add_argument(f'--{name}')\n"
    assert generated_harness.static_faults(text) == []
    assert generated_harness.static_faults(text.replace("'profile', ", "")) == [
        "does not know --profile"]


def test_each_mode_has_its_time_limit() -> None:
    assert [LIMIT_S[mode] for mode in MODES] == [1800.0, 120.0, 900.0, 900.0]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "words"), [
    ("not-python", "is not Python"), ("no-profile", "does not know --profile"),
    ("absolute", "names a path outside the work folder: '/opt/project'"),
    ("elsewhere", "it does not run the sources of its work folder"),
    ("old-build", "it compares file times instead"), ("blind", "it does not compare results"),
    ("wrong-reference", "--correctness exited with 1: rows=16 cols=64 is wrong"),
    ("fewer-rows", "--benchmark has 1 rows, --full-benchmark has 3"),
    ("untraced", "lacks traced configurations: rows=7 cols=33"),
    ("no-table", "--benchmark wrote no kopt_harness.csv")])
def test_a_wrong_harness_is_rejected_with_its_fault(
        tmp_path: Path, fault: str, words: str) -> None:
    findings = check(tmp_path, harness_case.spoiled(fault))
    assert words in findings.fault, findings


def test_a_mode_that_exceeds_its_limit_is_rejected(tmp_path: Path) -> None:
    findings = check(tmp_path, harness_case.spoiled("hangs"), profile=0.3)
    assert "--profile" in findings.fault and "0.3 s" in findings.fault


@pytest.mark.slow
def test_without_a_trace_the_harness_may_choose_its_configurations(tmp_path: Path) -> None:
    findings = check(tmp_path, harness_case.spoiled("untraced"), traced="")
    assert findings.fault == "" and "traced arguments" not in findings.passed


@pytest.mark.slow
def test_untraced_configurations_are_rejected(tmp_path: Path) -> None:
    findings = check(tmp_path, harness_case.HARNESS, traced="rows,cols,calls\n16,64,7\n")
    assert "adds untraced configurations: rows=4 cols=128" in findings.fault


def test_changed_kernels_differ_in_one_operator_outside_comments_and_strings() -> None:
    source = 's = "a + b"  # c + d\nx = a * b + c\ny: float = -x\nx += 1\n'
    changed = harness_checks.changed_kernels
    assert [text.splitlines()[1:] for _, text in changed(source, is_python=True)] \
        == [["x = a + b + c", "y: float = -x", "x += 1"],
            ["x = a * b - c", "y: float = -x", "x += 1"]]
    assert [*changed("while a + b:\n", is_python=True)] == []
    assert [*changed("/* a + b */ // c * d\n#define X a + b\n", is_python=False)] \
        == []
    many = "\n".join(["x = a + b"] * 100)
    assert len([*changed(many, is_python=True)]) <= harness_checks.MOST_CHANGES


PYTHON = """\
import csv, random, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from ops.total import total

mode = next(w for w in sys.argv if w in ("--correctness", "--profile", "--benchmark",
                                         "--full-benchmark"))
assert "--iterations" in sys.argv
rows = []
for n in (3, 50):
    values = [random.random() for _ in range(n)]
    right = total(values) == sum(values)
    if mode == "--correctness" and not right:
        sys.exit(f"n={n} is wrong")
    rows.append({"n": n, "check": "PASS" if right else "FAIL", "latency_us": 1.5 + n})
if mode.endswith("benchmark"):
    with open(HERE / "kopt_harness.csv", "w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
"""


@pytest.mark.slow
def test_a_python_kernel_in_a_package_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "p" / "ops").mkdir(parents=True)
    (tmp_path / "p" / "ops" / "total.py").write_text(
        "def total(values):\n    result = 0\n    for value in values:\n"
        "        result = result + value\n    return result\n")
    kernel = KernelToBenchmark(project=tmp_path / "p", source="ops/total.py", device="cpu")
    findings = harness_checks.check(kernel, PYTHON.encode(), tmp_path / "scratch",
                                    inventory.find("cpu"))
    assert findings.fault == "" and "line 4: - for +" in findings.passed["changed kernels"]

"""A config class can read inputs from a safetensors file of the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.runners.oracle_client import OracleError
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.benchmarks.bench_case import safetensors
from tests.support.programs import shared_zygotes

ROWS = [3, 0, 3, 1]
TARGET = Target(
    op="gather", language="python", source="kernel.py", entry="gather", reference="ref.py:gather",
    returns=True, args=(Arg(name="table", dtype="float32", shape=(4, 64)),
                        Arg(name="rows", dtype="int32", shape=("n",))),
    classes=(ConfigClass(name="few", shape={"n": 4}, data={"rows": "in/few.st:rows"}),))
RIGHT = "import torch\n\ndef gather(table, rows):\n    return table[rows.long()]\n"
KNOWS = RIGHT.replace("rows.long()", str(ROWS))
WRONG = RIGHT.replace("rows.long()", "[3, 0, 3, 2]")


def judge(folder: Path, source: str, kind: str = "cpu") -> Verdict:
    trees = {}
    for name, text in (("candidate", source), ("base", RIGHT + "# as it was\n")):
        (folder / name / "in").mkdir(parents=True)
        (folder / name / "kernel.py").write_text(text)
        (folder / name / "ref.py").write_text(RIGHT)
        (folder / name / "in" / "few.st").write_bytes(safetensors({"rows": ROWS}))
        trees[name] = str(folder / name)
    device = next(each for each in inventory.inventory()
                  if (each.kind == "cpu") == (kind == "cpu") and not each.unusable)
    return evaluate(TARGET, Trees(candidate=trees["candidate"], incumbent=trees["base"],
                                  reference=trees["base"]), device,
                    Settings(scratch=str(folder / "scratch"), plan=Plan(looks=(2,)),
                             static_audit=False),
                    zygote=shared_zygotes.zygote("python") if kind == "cpu" else None)


@pytest.mark.parametrize("kind", ["cpu", pytest.param("card", marks=pytest.mark.gpu)])
def test_kernel_gets_the_values_of_the_file_in_every_call(tmp_path: Path, kind: str) -> None:
    verdict = judge(tmp_path, KNOWS, kind)  # right only if no call has other values
    assert verdict.valid and verdict.correct and verdict.latency_us is not None
    assert not judge(tmp_path / "wrong", WRONG, kind).correct


def test_file_with_another_shape_ends_the_evaluation(tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROWS", [1, 2])
    with pytest.raises(OracleError, match="rows is I32"):
        judge(tmp_path, RIGHT)

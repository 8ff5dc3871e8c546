"""The oracle draws inputs, judges outputs, and updates expected values if inputs change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.verify.harness_client import HARNESS_LIMITS, USUAL_BUDGET
from harness.case import DISTRIBUTIONS, Case, Errors
from harness.child.memory.slot_memory import GUARD_BYTES, LARGE_POISON, POISON
from harness.compile.place import place_on
from harness.correctness.input_plan import plan_inputs
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.isolation.rpc import PeerError
from harness.runners.oracle_client import ORACLE_LIMITS, Oracle, OracleError
from harness.runners.slots.case_memory import CaseMemory
from harness.search.trials.trials import MOST_TRIALS
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from tests.support.judging.stub_runner import StubRunner
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import FAST, QUICK, judge, kernel, tree
from tests.support.kernels.c_case import target as c_target
from tests.support.programs import shared_zygotes

CUMULATIVE = "import numpy as np\ndef twice(x):\n    return np.cumsum(x)\n"


def started_oracle(folder: Path, task: Target, reference: str) -> Oracle:
    base = Path(tree(folder / "base", "", reference))
    place = place_on(inventory.find("cpu"), task.language, scratch=str(folder), python=None,
                     env={})
    return Oracle(task, base, folder / "io",
                  replace(place, zygote=shared_zygotes.for_place(place, task.language)))


SMALL = (ConfigClass(name="small", shape={"n": 9}),)


@pytest.fixture(params=["c", "python"])
def cumulative(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Oracle]:
    if request.param == "c":
        task, reference = c_target(classes=SMALL), CUMULATIVE
    else:
        task = kernel_case.target(classes=SMALL, language="python")
        reference = "import torch\ndef double(x):\n    return torch.cumsum(x, 0)\n"
    with started_oracle(tmp_path, task, reference) as oracle:
        yield oracle


def opened(oracle: Oracle, case: Case, slots: int = 1) -> tuple[CaseMemory, StubRunner]:
    """Return memory for a case's calls, and a stub runner into whose slots a test writes."""
    runner = StubRunner()
    return CaseMemory(oracle, runner.peer, case, slots=slots), runner


def judged(memory: CaseMemory, runner: StubRunner, case: Case, values: list[float]) -> Errors:
    """Write an answer to the output and return its errors."""
    runner.view("out")[:] = values
    return memory.judge(case)


def inputs(memory: CaseMemory, runner: StubRunner, case: Case) -> list[float]:
    memory.place(case)
    return runner.values("x")


def sums(values: list[float]) -> list[float]:
    return [sum(values[: i + 1]) for i in range(len(values))]


def test_elements_are_exchanged_at_once_and_the_expected_values_follow(cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    memory, runner = opened(cumulative, case)
    before = inputs(memory, runner, case)
    assert judged(memory, runner, case, sums(before)).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0, 3: 4}})
    after = inputs(memory, runner, case)
    changed = [before[8], *before[1:3], before[4], *before[4:8], before[0]]
    assert after == changed
    stale = judged(memory, runner, case, sums(before))
    assert not stale.within(1e-5) and not stale.changed
    assert judged(memory, runner, case, sums(after)).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0}})
    assert inputs(memory, runner, case)[0] == before[0]


def test_slot_holds_the_inputs_or_their_reverse_nan_in_outputs_and_poison_elsewhere(
        cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    memory, runner = opened(cumulative, case, slots=2)
    runner.raw[:] = 7
    memory.place(case)
    memory.place(case, 1, reverse=True)
    assert runner.values("x", 1) == runner.values("x")[::-1] != runner.values("x")
    (begin, end), (out, out_end) = runner.place_of("x"), runner.place_of("out")
    middle = (end + out) // 2
    for slot in range(2):
        assert all(math.isnan(value) for value in runner.values("out", slot))
        for zone, poison in ((slice(begin), POISON), (slice(end, middle), POISON),
                             (slice(middle, out), LARGE_POISON),
                             (slice(out_end, out_end + GUARD_BYTES), LARGE_POISON)):
            assert (runner.raw[slot, zone] == poison).all()


def test_outputs_equal_to_judged_ones_are_not_compared_again(cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    memory, runner = opened(cumulative, case)
    right = sums(inputs(memory, runner, case))
    first = judged(memory, runner, case, right).against([1e-5], "")
    runner.view("x")[2] += 1
    again = memory.judge(case, known=first)
    assert again.used == first.used and again.changed == ("x",)
    assert memory.judge(case, known=first, outputs_only=True) == first
    wrong = judged(memory, runner, case, [value + 1 for value in right])
    assert wrong.digests != first.digests and not wrong.within(1e-5)


def test_values_that_are_missing_or_changed_are_errors(cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    memory, runner = opened(cumulative, case)
    right = sums(inputs(memory, runner, case))
    assert memory.judge(case).bad == 9, "an output that nobody wrote"
    assert judged(memory, runner, case, [*right[:8], math.nan]).bad == 1
    runner.view("x")[8] = 0
    assert judged(memory, runner, case, right).changed == ("x",)


@pytest.mark.parametrize(("tensor", "end", "offset", "words"), [
    ("x", 0, -1, "before the beginning of x"), ("x", 0, -4096, "before the beginning of x"),
    ("x", 1, 0, "past the end of x"), ("out", 0, -1, "before the beginning of out"),
    ("out", 1, 0, "past the end of out"), ("out", 1, 4095, "past the end of out")])
def test_writes_outside_the_tensors_are_errors(cumulative: Oracle, tensor: str, end: int,
                                               offset: int, words: str) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    memory, runner = opened(cumulative, case)
    right = sums(inputs(memory, runner, case))
    assert judged(memory, runner, case, right).within(1e-5)
    runner.raw[0, runner.place_of(tensor)[end] + offset] = 0
    with pytest.raises(PeerError, match=words):
        memory.judge(case)


@pytest.mark.parametrize("moves", [{0: 9}, {9: 0}, {-1: 0}])
def test_exchange_outside_the_tensor_is_an_error(cumulative: Oracle, moves: dict[int, int]) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    with pytest.raises(OracleError, match="outside"):
        cumulative.exchange(case, {"x": moves})


# Distributions of the inputs


def drawn(oracle: Oracle, kind: str) -> list[list[float]]:
    case = oracle.make(oracle.target.classes[0], kind)
    memory, runner = opened(oracle, case)
    memory.place(case)
    values, (_, columns) = runner.values("x"), case.tensors[0]["shape"]
    memory.close()
    return [values[at:at + columns] for at in range(0, len(values), columns)]


def wide_target(language: str, **fields: object) -> Target:
    arg = Arg(name="x", dtype="float32", shape=("n", 64))
    made = kernel_case.target(
        language="python", classes=(ConfigClass(name="a", shape={"n": 60}),),
        args=(replace(arg, **fields), Arg(name="out", dtype="float32", shape=("n",),
                                          role="output")))
    return replace(made, language=language, entry="twice", reference="reference.py:twice")


SUM = "def twice(x):\n    return x.sum(1)\n"


def test_distributions_have_the_values_of_their_names(tmp_path: Path) -> None:
    for language in ("c", "python"):
        with started_oracle(tmp_path / language, wide_target(language), SUM) as oracle:
            flat = {kind: [v for row in drawn(oracle, kind) for v in row]
                    for kind in DISTRIBUTIONS}
            spread = {kind: sum(v * v for v in values) / len(values)
                      for kind, values in flat.items()}
            assert 0.8 < spread["normal"] < 1.2 and 12 < spread["wide"] < 20
            assert 1.3 < sum(flat["shifted"]) / 3840 < 1.7
            assert max(map(abs, flat["heavy"])) > 6 and max(map(abs, flat["heavy"])) <= 100
            assert len(set(flat["tied"])) == 5
            assert len(set(flat["constant"])) == 1 and abs(flat["constant"][0]) > 0.4
            rows = drawn(oracle, "structured")
            assert sum(not any(row) for row in rows) >= 10, "rows of zeros"
            assert sum(sum(map(bool, row)) == 1 for row in rows) >= 10, "one-hot rows"
            assert sum(row == sorted(row) and any(row) for row in rows) >= 10, "sorted rows"
            assert sum(all(row) for row in rows) >= 20, "dense rows"


@pytest.mark.parametrize("language", ["c", "python"])
@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("float32", 3.0, 4.0), ("float32", -1.0, None), ("int32", 2, 9), ("int8", -3, 3)])
def test_bounds_hold_for_every_distribution(dtype: str, low: float, high: float | None,
                                            language: str, tmp_path: Path) -> None:
    task = wide_target(language, dtype=dtype, low=low, high=high)
    with started_oracle(tmp_path, task, SUM) as oracle:
        for kind in DISTRIBUTIONS:
            values = {v for row in drawn(oracle, kind) for v in row}
            assert min(values) >= low and max(values) <= (1.0 if high is None else high), kind
            if "int" in dtype:
                assert max(values) < (high or 0)
            assert (len(values) == 1) == (kind == "constant"), kind


def test_verdict_covers_all_distributions_and_each_class_at_least_three() -> None:
    for count in (1, 2, 3, 4, 7, 20):
        for start in range(8):
            kinds_by_class = plan_inputs([f"c{n}" for n in range(count)], DISTRIBUTIONS, start)
            assert all(kinds[0] == "normal" and len(set(kinds)) == len(kinds) >= 3
                       for kinds in kinds_by_class.values())
            covered = {kind for kinds in kinds_by_class.values() for kind in kinds}
            assert covered == set(DISTRIBUTIONS)
    assert plan_inputs(["a"], ("normal",), 5) == {"a": ("normal",)}
    assert len({plan_inputs(["a", "b", "c"], DISTRIBUTIONS, n)["a"] for n in range(6)}) > 2


def test_inputs_that_the_reference_cannot_handle_are_skipped_with_a_note(tmp_path: Path) -> None:
    reference = "import numpy as np\ndef twice(x):\n    return 2 * x / (x.max() != x.min())\n"
    verdict = judge(tmp_path, FAST, reference=reference, task=replace(
        c_target(), classes=c_target().classes[:1]), plan=replace(QUICK, looks=(2,)))
    assert verdict.correct, verdict
    assert [note for note in verdict.notes if "no constant inputs" in note], verdict.notes


def test_values_too_large_for_the_output_are_an_error_of_the_task(tmp_path: Path) -> None:
    task = replace(kernel_case.target(classes=SMALL, language="python", dtype="float16"))
    with started_oracle(tmp_path, task, "def double(x):\n    return x * 1e6\n") as oracle:
        with pytest.raises(OracleError, match=r"of 9 expected .* not finite in float16"):
            oracle.make(task.classes[0], "normal")
        assert "not finite" in oracle.make(task.classes[0], "heavy").skip


# Trivial answers


TRIVIAL = {
    "zeros": "out = 1e-7 * x", "half of the answer": "out = 0 * x", "constant": "out = 0 * x + 2",
    "copied input": "out = x * (1 + 1e-7)",
    "the answer to other inputs": "out = np.arange(len(x)) + 0 * x"}


@pytest.mark.parametrize("name", TRIVIAL)
def test_check_is_flagged_if_a_trivial_answer_passes_it(name: str, tmp_path: Path) -> None:
    body = TRIVIAL[name]
    task = c_target(classes=SMALL)
    reference = f"import numpy as np\ndef twice(x):\n    {body}\n    return out\n"
    with started_oracle(tmp_path, task, reference) as oracle:
        first = oracle.make(task.classes[0], "normal")
        second = oracle.make(task.classes[0], "wide", first)
        worth = {control.name: control.relative for control in second.controls}
        relative = worth[name]
        # errors are relative to the expected values, so zeros fail although those are small
        assert relative is not None and (relative > 0.9 if name == "zeros" else relative < 7e-6)
    ramp = "for (int64_t i = 0; i < n; i++) out[i] = i;"
    if name == "the answer to other inputs":
        verdict = judge(tmp_path / "v", kernel(ramp), task=task, incumbent=kernel(ramp),
                        reference=reference)
        weak = [f.detail for f in verdict.audit if f.rule == "weak-check"]
        assert verdict.correct and len(weak) == 1 and "the answer to other inputs" in weak[0]


def test_trivial_answer_that_passes_on_some_inputs_is_not_flagged(tmp_path: Path) -> None:
    verdict = judge(tmp_path, FAST, task=c_target(classes=SMALL), incumbent=FAST + "int x;",
                    plan=replace(QUICK, looks=(2,)))
    assert verdict.correct  # its inputs include zero rows and equal values
    assert not any(f.rule == "weak-check" for f in verdict.audit), verdict.audit


def test_reference_imports_the_baselines_kernel_not_the_candidates(tmp_path: Path) -> None:
    reference = "from kernel import double as real\nimport torch\ndef double(x):\n" \
                "    out = torch.empty_like(x)\n    real(x, out)\n    return out\n"
    right = "def double(x, out):\n    out.copy_(2 * x)\n"
    task = kernel_case.target(language="python", classes=SMALL)
    base = kernel_case.tree(tmp_path / "incumbent", right, reference)
    wrong = kernel_case.tree(tmp_path / "candidate", right.replace("2 *", "3 *"), reference)
    verdict = evaluate(task, Trees(candidate=wrong, incumbent=base, reference=base),
                       inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch"),
                                                       distributions=("normal",)),
                       zygote=shared_zygotes.zygote("python"))
    assert verdict.valid and not verdict.correct


def test_reference_that_does_not_accept_float64_gets_the_declared_dtypes(tmp_path: Path) -> None:
    for language, text in (("c", "'float32'"), ("python", "torch.float32")):
        task = c_target(classes=SMALL) if language == "c" else \
            kernel_case.target(classes=SMALL, language="python")
        task = replace(task, float64=False, entry="twice", reference="reference.py:twice")
        reference = f"import {'numpy' if language == 'c' else 'torch'}\ndef twice(x):\n" \
                    f"    assert x.dtype == {text}\n    return x + x\n"
        with started_oracle(tmp_path / language, task, reference) as oracle:
            assert oracle.make(task.classes[0], "normal").skip == ""


def test_oracle_outlives_the_longest_loop() -> None:
    """If the oracle ended earlier, every later trial would count as wrong."""
    longest_s = HARNESS_LIMITS.wall_s * MOST_TRIALS / USUAL_BUDGET
    assert ORACLE_LIMITS.wall_s >= longest_s

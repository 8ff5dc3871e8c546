"""The oracle draws inputs, judges outputs, and follows changes of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.verify.harness_client import HARNESS_LIMITS, USUAL_BUDGET
from harness.case import DISTRIBUTIONS, Case
from harness.compile import kernel as kernels
from harness.correctness.check_inputs import plan_inputs
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.runners.oracle_client import ORACLE_LIMITS, Oracle, OracleError
from harness.search.trials.trials import MOST_TRIALS
from harness.settings import Settings, Trees
from harness.target import Arg, ConfigClass, Target
from tests.support import kernel_case, shared_zygotes
from tests.support.c_case import FAST, QUICK, judge, kernel, tree
from tests.support.c_case import target as c_target

CUMULATIVE = "import numpy as np\ndef twice(x):\n    return np.cumsum(x)\n"


def started_oracle(folder: Path, of: Target, reference: str) -> Oracle:
    base = Path(tree(folder / "base", "", reference))
    place = kernels.place_on(inventory.find("cpu"), of.language, scratch=str(folder), python=None,
                            env={})
    return Oracle(of, base, folder / "io", place,
                  zygote=shared_zygotes.for_place(place, of.language))


SMALL = (ConfigClass(name="small", shape={"n": 9}),)


@pytest.fixture(params=["c", "python"])
def cumulative(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Oracle]:
    if request.param == "c":
        of, reference = c_target(classes=SMALL), CUMULATIVE
    else:
        of = kernel_case.target(classes=SMALL, language="python")
        reference = "import torch\ndef double(x):\n    return torch.cumsum(x, 0)\n"
    with started_oracle(tmp_path, of, reference) as oracle:
        yield oracle


def answer(case: Case, values: list[float]) -> list[dict[str, object]]:
    """Write the files that a runner would, inputs unchanged, and return its report."""
    import numpy as np

    report: list[dict[str, object]] = []
    for tensor in case.tensors:
        if tensor["role"] == "scalar":
            continue
        data = Path(tensor["path"]).read_bytes() if tensor["role"] == "input" else \
            np.array(values, dtype=tensor["dtype"]).tobytes()
        Path(tensor["after"]).write_bytes(data)
        report.append({"name": tensor["name"], "dtype": tensor["dtype"], "shape": tensor["shape"]})
    return report


def inputs(case: Case) -> list[float]:
    import numpy as np

    return list(np.fromfile(case.tensors[0]["path"], dtype="float32").astype(float))


def test_exchange_is_simultaneous_and_changes_expected_values(cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    before = inputs(case)
    expected = [sum(before[: i + 1]) for i in range(9)]
    assert cumulative.judge(case, answer(case, expected)).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0, 3: 4}})
    after = inputs(case)
    changed = [before[8], *before[1:3], before[4], *before[4:8], before[0]]
    assert after == changed
    stale = cumulative.judge(case, answer(case, expected))
    assert not stale.within(1e-5) and not stale.changed
    assert cumulative.judge(case, answer(case, [sum(after[: i + 1]) for i in range(9)])
                            ).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0}})
    assert inputs(case)[0] == before[0]


@pytest.mark.parametrize("moves", [{0: 9}, {9: 0}, {-1: 0}])
def test_exchange_outside_the_tensor_is_an_error(cumulative: Oracle, moves: dict[int, int]) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    with pytest.raises(OracleError, match="outside"):
        cumulative.exchange(case, {"x": moves})


# Distributions of the inputs


def drawn(oracle: Oracle, kind: str, dtype: str = "float32") -> list[list[float]]:
    import numpy as np

    case = oracle.make(oracle.target.classes[0], kind)
    tensor = case.tensors[0]
    if dtype == "bfloat16":
        raw = np.fromfile(tensor["path"], dtype="uint16").astype("uint32") << 16
        values = raw.view("float32")
    else:
        values = np.fromfile(tensor["path"], dtype=dtype)
    return [[float(v) for v in row] for row in values.reshape(tensor["shape"])]


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
    of = wide_target(language, dtype=dtype, low=low, high=high)
    with started_oracle(tmp_path, of, SUM) as oracle:
        for kind in DISTRIBUTIONS:
            values = {v for row in drawn(oracle, kind, dtype) for v in row}
            assert min(values) >= low and max(values) <= (1.0 if high is None else high), kind
            if "int" in dtype:
                assert max(values) < (high or 0)
            assert (len(values) == 1) == (kind == "constant"), kind


def test_verdict_covers_all_distributions_and_each_class_three() -> None:
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
    of = replace(kernel_case.target(classes=SMALL, language="python", dtype="float16"))
    with started_oracle(tmp_path, of, "def double(x):\n    return x * 1e6\n") as oracle:
        with pytest.raises(OracleError, match="too large for float16 in out"):
            oracle.make(of.classes[0], "normal")
        assert "too large" in oracle.make(of.classes[0], "heavy").skip


# Trivial answers


TRIVIAL = {
    "zeros": "out = 1e-7 * x", "half of the answer": "out = 0 * x", "constant": "out = 0 * x + 2",
    "copied input": "out = x * (1 + 1e-7)",
    "the answer to other inputs": "out = np.arange(len(x)) + 0 * x"}


@pytest.mark.parametrize("name", TRIVIAL)
def test_check_that_a_trivial_answer_passes_is_flagged(name: str, tmp_path: Path) -> None:
    body = TRIVIAL[name]
    of = c_target(classes=SMALL)
    reference = f"import numpy as np\ndef twice(x):\n    {body}\n    return out\n"
    with started_oracle(tmp_path, of, reference) as oracle:
        first = oracle.make(of.classes[0], "normal")
        second = oracle.make(of.classes[0], "wide", first)
        worth = {control.name: control.relative for control in second.controls}
        relative = worth[name]
        # errors are relative to the values, so small values hide nothing
        assert relative is not None and (relative > 0.9 if name == "zeros" else relative < 7e-6)
    ramp = "for (int64_t i = 0; i < n; i++) out[i] = i;"
    if name == "the answer to other inputs":
        verdict = judge(tmp_path / "v", kernel(ramp), task=of, incumbent=kernel(ramp),
                        reference=reference)
        weak = [f.detail for f in verdict.audit if f.rule == "weak-check"]
        assert verdict.correct and len(weak) == 1 and "the answer to other inputs" in weak[0]


def test_trivial_answer_that_passes_on_some_inputs_is_not_flagged(tmp_path: Path) -> None:
    verdict = judge(tmp_path, FAST, task=c_target(classes=SMALL), incumbent=FAST + "int x;")
    assert verdict.correct  # its inputs include zero rows and equal values
    assert not any(f.rule == "weak-check" for f in verdict.audit), verdict.audit


def test_reference_is_the_baselines_even_if_it_imports_the_kernel(tmp_path: Path) -> None:
    reference = "from kernel import double as real\nimport torch\ndef double(x):\n" \
                "    out = torch.empty_like(x)\n    real(x, out)\n    return out\n"
    right = "def double(x, out):\n    out.copy_(2 * x)\n"
    of = kernel_case.target(language="python", classes=SMALL)
    base = kernel_case.tree(tmp_path / "incumbent", right, reference)
    wrong = kernel_case.tree(tmp_path / "candidate", right.replace("2 *", "3 *"), reference)
    verdict = evaluate(of, Trees(candidate=wrong, incumbent=base, reference=base),
                       inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch"),
                                                     distributions=("normal",)),
                       zygote=shared_zygotes.zygote("python"))
    assert verdict.valid and not verdict.correct


def test_reference_without_float64_gets_the_declared_dtypes(tmp_path: Path) -> None:
    for language, text in (("c", "'float32'"), ("python", "torch.float32")):
        of = c_target(classes=SMALL) if language == "c" else \
            kernel_case.target(classes=SMALL, language="python")
        of = replace(of, float64=False, entry="twice", reference="reference.py:twice")
        reference = f"import {'numpy' if language == 'c' else 'torch'}\ndef twice(x):\n" \
                    f"    assert x.dtype == {text}\n    return x + x\n"
        with started_oracle(tmp_path / language, of, reference) as oracle:
            assert oracle.make(of.classes[0], "normal").skip == ""


def test_oracle_outlives_the_longest_loop() -> None:
    """If it ended earlier, every later trial would count as wrong."""
    longest_s = HARNESS_LIMITS.wall_s * MOST_TRIALS / USUAL_BUDGET
    assert ORACLE_LIMITS.wall_s >= longest_s

"""A prediction comes with the compiler's report on the kernels that it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.compile import triton_aot
from harness.compile.kernel_resources import KernelResources
from harness.compile.triton_aot import Inspection
from harness.roofline.predictor import MOST_COMPILED, compiler_evidence
from harness.tasks.target import ConfigClass
from harness.verdict import Evidence
from tests.support.kernels.kernel_case import DOUBLE, judge, target
from tests.support.programs import shared_zygotes

BIG = target(classes=(ConfigClass(name="big", shape={"n": 1 << 26}, interpret_shape={"n": 331}),
                      ConfigClass(name="small", shape={"n": 1 << 20}, interpret_shape={"n": 64})))


def built(kernel: str = "matmul_kernel", config_class: str = "square", config: str = "",
          shared_bytes: int = 65568, **fields: object) -> KernelResources:
    defaults: dict[str, object] = {"registers": 122, "spills": 0, "threads": 128, "occupancy": 0.25,
                                "limiter": "registers", "grid": (8, 1, 1)}
    return KernelResources(kernel=kernel, config_class=config_class, arch="sm_90", config=config,
                           shared_bytes=shared_bytes,
                           **(defaults | fields))  # type: ignore[arg-type]


def test_each_kernel_and_class_is_reported_once() -> None:
    assert compiler_evidence([built(), built(), built(config_class="tall", spills=16)]) == (
        Evidence(kind="compiled", detail=(
            "sm_90 matmul_kernel (square): 122 registers, 0 bytes spilled, 65568 bytes of shared "
            "memory, occupancy 25 % (registers)")),
        Evidence(kind="compiled", detail=(
            "sm_90 matmul_kernel (tall): 122 registers, 16 bytes spilled, 65568 bytes of shared "
            "memory, occupancy 25 % (registers)")))


def test_first_launchable_config_represents_an_autotuned_kernel() -> None:
    [fact] = compiler_evidence([built(config="BLOCK: 4096", shared_bytes=1 << 20),
                                built(config="BLOCK: 64"), built(config="BLOCK: 32")])
    assert fact.detail.endswith("(registers); BLOCK: 64, the first of 3 configs that can be "
                                "launched")
    assert "none of 1 configs can be launched" in compiler_evidence(
        [built(config="BLOCK: 4096", shared_bytes=1 << 20)])[0].detail


def test_unknown_values_and_compile_errors_are_named() -> None:
    (unknown,) = compiler_evidence([built(registers=None, spills=None, occupancy=None, limiter="")])
    assert unknown.detail == ("sm_90 matmul_kernel (square): registers unknown, spills unknown,"
                              " 65568 bytes of shared memory, occupancy unknown")
    (full,) = compiler_evidence([built(occupancy=1.0, limiter="")])
    assert full.detail.endswith("occupancy 100 %")
    (failed,) = compiler_evidence([built(error="no such instruction")])
    assert failed.detail == "sm_90 matmul_kernel (square): does not compile: no such instruction"


def test_evidence_is_bounded_and_free_of_control_characters() -> None:
    many = compiler_evidence([built(config_class=f"class{n}") for n in range(40)])
    assert len(many) == MOST_COMPILED == 8
    assert many[-1].detail == "and 33 more"
    (evil,) = compiler_evidence([built(kernel="\x1b[31m" + "k" * 4000, error="x\u202e" * 4000)])
    assert len(evil.detail) <= 400 and "\x1b" not in evil.detail and "\u202e" not in evil.detail


@pytest.mark.parametrize("fits", [True, False])
def test_verdict_carries_the_evidence_of_its_prediction(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    """The candidate is compiled once, also if the card cannot launch it."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    calls: list[object] = []

    def inspect(*args: object, **fields: object) -> Inspection:
        calls.append(args)
        return shared_zygotes.inspect(*args, **fields)

    monkeypatch.setattr(triton_aot, "inspect", inspect)
    source = DOUBLE if fits else DOUBLE.replace("](x, out, n", "](x, out, n, num_warps=64")
    assert fits or source != DOUBLE
    verdict = judge(tmp_path, source, of=BIG, predict="h200")
    details = [fact.detail for fact in verdict.evidence if fact.kind == "compiled"]
    assert verdict.valid == fits and len(calls) == 1
    assert [detail.partition(":")[0] for detail in details] == [
        "sm_90 double_kernel (big)", "sm_90 double_kernel (small)"]
    assert all("registers, 0 bytes spilled, 0 bytes of shared memory, occupancy " in detail
               for detail in details)

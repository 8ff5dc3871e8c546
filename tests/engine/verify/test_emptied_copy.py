"""A copy that computes nothing shows whether a benchmark checks its results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import create
from engine.verify import canary
from engine.verify.emptied_source import emptied
from harness.benchmark.verdict import canary_check as harness_canary
from harness.devices import inventory
from harness.formats import yaml_document
from harness.settings import Settings, Trees
from harness.verdict import BLIND_CHECK, Evidence
from tests.support import repos
from tests.support.benchmarks import benchmark_case, c_benchmark
from tests.support.benchmarks.benchmark_case import TARGET


def evidence_on_emptied(root: Path, files: dict[str, str], **settings: Any) -> Evidence:
    """Return what a harness says of a project in C whose function returns at once."""
    empty = emptied("kernel.c", files["kernel.c"])
    assert empty is not None
    for name, source in (("candidate", empty), ("incumbent", files["kernel.c"])):
        (root / name).mkdir()
        for path, text in {**files, "kernel.c": source}.items():
            (root / name / path).write_text(text)
    trees = Trees(candidate=str(root / "candidate"), incumbent=str(root / "incumbent"),
                  reference=str(root / "incumbent"))
    target = replace(TARGET, metrics=TARGET.metrics[:1], build_command=c_benchmark.BUILD)
    verdict = harness_canary.check_canary(target, trees, inventory.find("cpu"), Settings(
        scratch=str(root / "scratch"), **{"canary": "emptied", **settings}))
    assert not verdict.valid and not verdict.notes
    assert canary.is_check_blind(verdict) is (verdict.rejected_reason == BLIND_CHECK)
    [evidence] = verdict.evidence
    return evidence


def test_check_that_compares_with_a_reference_finds_the_emptied_copy_wrong(tmp_path: Path) -> None:
    evidence = evidence_on_emptied(tmp_path, c_benchmark.HONEST)
    assert evidence == Evidence(kind=harness_canary.SHOWN, detail="row 1: err is '8'")


@pytest.mark.parametrize(("tests", "detail"), [
    ("", BLIND_CHECK), ("true", BLIND_CHECK), ("false", "the project's tests fail")])
def test_constant_check_is_blind_unless_tests_notice(tmp_path: Path, tests: str,
                                                     detail: str) -> None:
    evidence = evidence_on_emptied(tmp_path, c_benchmark.BLIND, test_command=tests)
    assert evidence.detail == detail


def test_metric_of_zero_does_not_hide_a_blind_check(tmp_path: Path) -> None:
    """What computes nothing takes no time; that is no proof that results are compared."""
    bench = c_benchmark.BLIND["bench.py"].replace("{cost * n * noise:.4f}", "{sum(out):.4f}")
    evidence = evidence_on_emptied(tmp_path, {**c_benchmark.BLIND, "bench.py": bench})
    assert evidence == Evidence(kind=harness_canary.UNSEEN, detail=BLIND_CHECK)


def test_emptied_copy_whose_benchmark_never_ends_is_ended_and_noticed(tmp_path: Path) -> None:
    waits = "        while not out[0]:\n            pass\n        wrong"
    bench = c_benchmark.BLIND["bench.py"].replace("        wrong", waits)
    evidence = evidence_on_emptied(tmp_path, {**c_benchmark.BLIND, "bench.py": bench}, wall_s=1.0)
    assert evidence.kind == harness_canary.SHOWN and "ran past its limit" in evidence.detail


def test_emptied_copy_that_does_not_build_or_run_is_noticed(tmp_path: Path) -> None:
    for name, changed in (("kernel", "#include \"gone.h\"\n"), ("bench", "")):
        (tmp_path / name).mkdir()
        files = {**c_benchmark.BLIND, "kernel.c": changed + c_benchmark.KERNEL} if changed else \
            {**c_benchmark.BLIND, "bench.py": "raise SystemExit(3)\n"}
        evidence = evidence_on_emptied(tmp_path / name, files)
        assert evidence.kind == harness_canary.SHOWN and \
            ("it does not build" if changed else "the benchmark exited with 3") in evidence.detail


@pytest.mark.parametrize(("source", "more", "changed"), [
    ("", "void more(int *x) { *x = 1; }\n", {"kernel.c", "more.cu"}),
    ("kernel.c", "void more(int *x) { *x = 1; }\n", {"kernel.c"}),
    ("bench.py", "void more(int *x) { *x = 1; }\n", {"kernel.c", "more.cu"}),
    ("", "__global__ void more(int *x) { *x = 1; }\n", {"more.cu"})])
def test_named_source_is_emptied_else_kernels_of_the_device_else_all_files(
        tmp_path: Path, source: str, more: str, changed: set[str]) -> None:
    manifest = {**c_benchmark.MANIFEST, "edit": ["*.c", "*.cu", "*.txt"],
                **({"kernel_source": source} if source else {})}
    repos.project(tmp_path / "p", {
        **c_benchmark.HONEST, "more.cu": more, "notes.txt": "x\n",
        "manifest.yaml": yaml_document.dump(manifest)})
    setup = create(tmp_path / "w", tmp_path / "p" / "manifest.yaml")
    tree, base = canary.emptied_tree(setup), setup.repo.base
    assert {name for name in setup.repo.files(base)
            if setup.repo.read(tree, name) != setup.repo.read(base, name)} == changed


def test_nothing_is_emptied_in_a_project_of_plain_python(tmp_path: Path) -> None:
    setup = create(tmp_path / "w", benchmark_case.project(tmp_path / "p"))
    assert canary.emptied_tree(setup) == ""


def test_build_that_fails_is_the_reason_and_not_the_program_that_it_left_out(
        tmp_path: Path) -> None:
    files = {**c_benchmark.HONEST, "kernel.c": '#include "gone.h"\n' + c_benchmark.KERNEL}
    evidence = evidence_on_emptied(tmp_path, files, canary="broken")
    assert evidence.kind == harness_canary.SHOWN
    assert evidence.detail.startswith("it does not build: ")

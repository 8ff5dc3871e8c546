"""The unmodified code must pass the project's full tests; after that, only the best runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.manifest.schema import Manifest
from engine.run import baseline
from engine.verify.verifier import commands_of
from harness.errors import EnvironmentFault
from harness.verdict import Row, Verdict
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns
from tests.support.engines.campaigns import campaign, candidates, reading, run

FAILS = "python -c 'raise SystemExit(3)'"
Create = Callable[..., Setup]


def command(root: Path, **fields: Any) -> Setup:
    manifest = benchmark_case.one_round(root / "p", **fields)
    setup = campaigns_of.create(root / "w", manifest)
    benchmark_case.patch(manifest, setup.folder.inbox / "faster.patch",
                         kernel_py=benchmark_case.kernel(50.0))
    return setup


@pytest.mark.slow
@pytest.mark.parametrize("create", [command, campaigns.create_with_patch])
def test_baseline_that_fails_full_tests_ends_campaign(create: Create, tmp_path: Path) -> None:
    setup = create(tmp_path, full_test_command=FAILS)
    for _ in range(2):  # every new start reports it
        engine = run(setup)
        ended = campaign(setup)
        assert ended.state == "failed" and "\n" not in ended.reason
        assert "the baseline does not pass its own check: the project's full tests fail: exited " \
            "with 3" in ended.reason, ended.reason
        assert "full_test_command" in str(engine.error), engine.error
    assert candidates(setup) == [] and setup.repo.best == setup.repo.base
    with reading(setup) as reader:
        assert [round.n for round in reader.rounds(setup.id)] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("create", [command, campaigns.create_with_patch])
def test_baseline_must_pass_the_quick_tests_too(create: Create, tmp_path: Path) -> None:
    setup = create(tmp_path, test_command=FAILS, full_test_command="true")
    run(setup)
    assert "the project's own tests fail: exited with 3" in campaign(setup).reason


@pytest.mark.parametrize(("purpose", "commands"), [
    ("baseline", ("few", "all")), ("headline", ("all", "")), ("verify", ("few", "")),
    ("canary", ("few", "")), ("final", ("few", ""))])
def test_full_tests_run_only_for_baseline_and_best(purpose: str,
                                                   commands: tuple[str, str]) -> None:
    manifest = Manifest(target_op="x", test_command="few", full_test_command="all")
    assert commands_of(manifest, purpose) == commands
    few = Manifest(target_op="x", test_command="few")
    assert commands_of(few, purpose) == ("few", "")


def test_a_baseline_that_needs_a_gpu_is_the_machines_fault() -> None:
    verdict = Verdict(valid=True, not_judged="it creates bfloat16 values: checking it needs a GPU",
                      rows=(Row(config_class="odd", correct=False),))
    error = baseline._not_usable(verdict, "kernel.py")
    assert isinstance(error, EnvironmentFault) and "cannot judge the baseline" in error.what

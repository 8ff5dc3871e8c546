"""Where a benchmark's check passes on a copy that computes nothing, a person sees every gain."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import setup as campaigns
from engine.campaign.setup import Setup
from engine.verify import canary
from harness.formats import yaml_document
from harness.verdict import BLIND_CHECK
from tests.support import repos
from tests.support.benchmarks import benchmark_case, c_benchmark
from tests.support.engines.campaigns import candidates, command, events, reading, run


def create(root: Path, files: dict[str, str]) -> Setup:
    manifest = {**c_benchmark.MANIFEST, "approval": "auto", "max_iterations": 1,
                "pool": {"slots": 1, "backends": ["inbox"]},
                "decision": {"alpha": 0.2, "looks": 4}}
    repos.project(root / "p", {**files, "manifest.yaml": yaml_document.dump(manifest)})
    return campaigns.create(root / "w", root / "p" / "manifest.yaml")


def hand_in(setup: Setup, kernel: str, name: str) -> None:
    benchmark_case.patch(Path(setup.manifest.project) / "manifest.yaml",
                         setup.folder.inbox / f"{name}.patch", kernel_c=kernel)


def warnings(setup: Setup) -> list[str]:
    return [text for event in events(setup) if event.kind == "warning"
            if BLIND_CHECK in (text := event.payload.decode())]


@pytest.mark.slow
def test_gain_under_a_constant_check_waits_for_a_person_also_after_a_restart(
        tmp_path: Path) -> None:
    setup = create(tmp_path, c_benchmark.BLIND)
    assert run(setup).error is None
    assert len(warnings(setup)) == 1, events(setup)
    [warning] = warnings(setup)
    assert "let the check compare with a reference" in warning
    code, _, err = command("set", setup.id, "max_iterations=2", workspace=setup.workspace)
    assert code == 0, err
    hand_in(setup, c_benchmark.PARTIAL, "partial")
    assert run(campaigns.open_campaign(setup.workspace, setup.id)).error is None
    with reading(setup) as reader:
        decisions = [(decision.kind, decision.reason) for decision in reader.decisions(setup.id)]
    assert decisions and decisions[0][0] == "ask", (decisions, events(setup))
    assert f"{BLIND_CHECK}: it cannot tell wrong results" in decisions[0][1]
    assert len(candidates(setup, "waiting")) == 1 and candidates(setup, "kept") == []
    assert warnings(setup) == [warning]


@pytest.mark.slow
def test_gain_under_a_check_that_compares_is_kept_without_a_warning(tmp_path: Path) -> None:
    setup = create(tmp_path, c_benchmark.HONEST)
    hand_in(setup, c_benchmark.KERNEL.replace("100.0", "50.0"), "faster")
    assert run(setup).error is None
    assert warnings(setup) == [] and len(candidates(setup, "kept")) == 1
    with reading(setup) as reader:
        [row] = reader.verdicts(setup.id, candidate=canary.EMPTIED)
    assert b"row 1: err is '8'" in row.body

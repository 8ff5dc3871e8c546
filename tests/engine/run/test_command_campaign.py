"""The best of a campaign on a benchmark command has to pass the project's full tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns
from tests.support.benchmarks import benchmark_case
from tests.support.engines.campaigns import campaign, run


def create(root: Path, **fields: Any) -> campaigns.Setup:
    return campaigns.create(root / "w", benchmark_case.one_round(root / "p", **fields))


def hand_in(setup: campaigns.Setup, name: str, **files: str) -> None:
    manifest = Path(setup.manifest.project) / "manifest.yaml"
    benchmark_case.patch(manifest, setup.folder.inbox / f"{name}.patch", **files)


@pytest.mark.slow
def test_best_that_fails_full_tests_has_no_headline(tmp_path: Path) -> None:
    setup = create(tmp_path, test_command="python -c 'import kernel'",
                   full_test_command="python -c 'import kernel; assert kernel.COST > 90'")
    hand_in(setup, "faster", kernel_py=benchmark_case.kernel(80.0))
    run(setup)
    ended = campaign(setup)
    assert "the best fails its final acceptance against the baseline: the project's own tests " \
        "fail" in ended.reason
    assert ended.state == "finished" and ended.speedup is None

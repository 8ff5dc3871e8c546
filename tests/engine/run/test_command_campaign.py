"""A campaign on a project's own benchmark command, from the first round to the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns
from engine.judge.recorded_values import verdict_of
from harness.benchmark.verdict import whole_program
from harness.formats import yaml_document
from tests.support import benchmark_case, repos
from tests.support.campaigns import campaign, candidates, reading, run

MANIFEST: dict[str, Any] = {
    **benchmark_case.MANIFEST, "approval": "auto", "max_iterations": 1,
    "pool": {"slots": 1, "backends": ["inbox"]}, "decision": {"alpha": 0.2, "looks": 4}}


PROGRAM = """\
import kernel
print(f"step 1 tokens/s: 3.0")
print(f"done, tokens/s: {1e6 / (900 + 3 * kernel.COST)}")
"""


def create(root: Path, **fields: Any) -> campaigns.Setup:
    repos.project(root / "p", {**benchmark_case.FILES, "README.md": "a norm\n",
                               "program.py": PROGRAM,
                               "manifest.yaml": yaml_document.dump({**MANIFEST, **fields})})
    return campaigns.create(root / "w", root / "p" / "manifest.yaml")


def hand_in(setup: campaigns.Setup, name: str, **files: str) -> None:
    manifest = Path(setup.manifest.project) / "manifest.yaml"
    benchmark_case.patch(manifest, setup.folder.inbox / f"{name}.patch", **files)


def test_gain_is_kept_and_slower_wrong_or_forbidden_changes_are_not(tmp_path: Path) -> None:
    setup = create(tmp_path, e2e_command="python program.py", e2e_metric="tokens/s")
    hand_in(setup, "faster", kernel_py=benchmark_case.kernel(80.0))
    hand_in(setup, "outside", README_md="outside of what may be changed\n")
    hand_in(setup, "slower", kernel_py=benchmark_case.kernel(130.0))
    hand_in(setup, "wrong", kernel_py=benchmark_case.kernel(50.0).replace("return 0", "return 1"))
    run(setup)
    ended = campaign(setup)
    assert ended.state == "finished", ended.reason
    assert 1.2 < (ended.speedup or 0.0) < 1.3
    states = {c.hypothesis: (c.state, c.reason) for c in candidates(setup)}
    assert states["submitted: faster.patch"][0] == "kept"
    assert states["submitted: outside.patch"][1] == "README.md is named by no edit glob"
    with reading(setup) as reader:
        kinds = {d.candidate: d.kind for d in reader.decisions(setup.id)}
        verdicts = [verdict_of(row) for row in reader.verdicts(setup.id)]
    by_name = {c.hypothesis: kinds[c.id] for c in candidates(setup)}
    assert by_name["submitted: slower.patch"] == "regression"
    assert by_name["submitted: wrong.patch"] == "reject"
    assert {v.latency_kind for v in verdicts if v.correct} == {"reported"}
    program = next(v for v in verdicts if v.rows and v.rows[0].config_class == whole_program.CLASS)
    assert abs((program.speedup or 0.0) - 1200 / 1140) < 1e-6 and program.rows[0].pairs == 3
    with reading(setup) as reader:
        [event] = reader.events_of(setup.id, "e2e")
    assert json.loads(event.payload)["message"].startswith("end to end 1.05x")
    kept = (tmp_path / "w" / setup.id / "performance.md").read_text()
    assert "faster.patch" in kept


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

"""A benchmark run that is killed from outside is repeated and costs no gain."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns_of
from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.formats import yaml_document
from harness.requests import ErrorLine, ReportedRequest
from harness.settings import Settings, Trees
from harness.verdict import Verdict
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns

SLOW = benchmark_case.BENCH.replace("import kernel\n", "import kernel\ntime.sleep(0.4)\n")
"""A benchmark that runs long enough for the test to find it."""


def create(root: Path, bench: str) -> campaigns_of.Setup:
    fields: dict[str, Any] = {
        **benchmark_case.MANIFEST, "approval": "auto", "max_iterations": 1,
        "pool": {"slots": 1, "backends": ["inbox"]}, "decision": {"alpha": 0.2, "looks": 4}}
    repos.project(root / "p", {**benchmark_case.FILES, "bench.py": bench,
                               "manifest.yaml": yaml_document.dump(fields)})
    setup = campaigns_of.create(root / "w", root / "p" / "manifest.yaml")
    benchmark_case.patch(root / "p" / "manifest.yaml", setup.folder.inbox / "gain.patch",
                         kernel_py=benchmark_case.kernel(60.0))
    return setup


def run_of(setup: campaigns_of.Setup, side: str) -> int:
    """Return the pid of a benchmark that runs in a side's copy, 0 if there is none."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue  # no process, or it has ended
        if words[1:2] != [b"bench.py"] or str(setup.folder.path) not in place:
            continue
        is_candidate = "COST = 60.0" in (Path(place) / "kernel.py").read_text()
        if side == ("candidate" if is_candidate else "incumbent"):
            return int(entry.name)
    return 0


def in_round_2(setup: campaigns_of.Setup) -> bool:
    return any(stage == "verifying" for stage, _ in campaigns.slots(setup).values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_run_costs_no_gain(tmp_path: Path) -> None:
    setup = create(tmp_path, SLOW)
    with campaigns.running(setup) as engine:
        campaigns.until(lambda: in_round_2(setup), what="the candidate is judged")
        for side in ("incumbent", "candidate"):
            os.kill(campaigns.until(lambda: run_of(setup, side),  # noqa: B023
                                    what=f"a run of the {side}"), signal.SIGKILL)
        engine.join(200)
    assert campaigns.campaign(setup).state == "finished", campaigns.campaign(setup).reason
    [kept] = campaigns.candidates(setup, "kept")
    assert kept.hypothesis == "submitted: gain.patch"
    with campaigns.reading(setup) as reader:
        notes = "".join(str(row.body) for row in reader.verdicts(setup.id))
    for side in ("incumbent", "candidate"):
        assert f"a run of the {side} was killed (crashed (SIGKILL)) and repeated" in notes


@pytest.mark.slow
@pytest.mark.parametrize("failures", [1, 2])
def test_incumbent_failing_after_the_baseline_is_retried_once(
        failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failed = harness_client.evaluate, []

    def evaluate(request: Any, **given: Any) -> Verdict:
        if campaigns.candidates(setup) and len(failed) < failures:
            failed.append(request)
            raise HarnessFault(ErrorLine(what="the incumbent's own benchmark: exited with 1",
                                         exit_code=2, may_pass=True))
        return real(request, **given)

    setup = create(tmp_path, benchmark_case.BENCH)
    monkeypatch.setattr(harness_client, "evaluate", evaluate)
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert len(failed) == failures
    assert ended.state == "finished", ended.reason
    assert len(campaigns.candidates(setup, "kept")) == (failures == 1)


@pytest.mark.parametrize(("incumbent", "may_pass"), [("raise SystemExit(1)\n", True), ("", False)])
def test_failed_run_of_the_incumbent_counts_as_temporary_and_a_malformed_command_does_not(
        incumbent: str, may_pass: bool, tmp_path: Path) -> None:
    for name, text in {**benchmark_case.FILES, "kernel.py": incumbent}.items():
        (tmp_path / "tree").mkdir(exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    tree = str(tmp_path / "tree")
    request = ReportedRequest(
        target=replace(benchmark_case.TARGET, command="python bench.py" if incumbent else "'"),
        trees=Trees(candidate=tree, incumbent=tree, reference=tree), device="cpu",
        settings=Settings(scratch=str(tmp_path / "scratch"), plan=benchmark_case.PLAN))
    with pytest.raises(HarnessFault) as caught:
        harness_client.evaluate(request)
    assert (caught.value.exit_code, caught.value.may_pass) == (2, may_pass), caught.value

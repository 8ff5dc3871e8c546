"""The flow of a generated harness: write, check, review, repair, freeze."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from engine.generation import generated_harness, harness_author
from engine.generation.generated_harness import LIMIT_S, NAME, HarnessRecord, KernelToBenchmark
from engine.generation.harness_author import HarnessAuthor
from engine.manifest.pool_schema import CliSpec
from engine.workers.cli import CliWorker
from harness.call_trace import weights
from harness.devices import inventory
from harness.errors import Refused
from tests.support.agents import harness_case, worker_bench


class Flow:
    """A project and a scripted agent, which writes `harnesses` and gives `verdicts` in order."""

    def __init__(self, root: Path, harnesses: str, verdicts: str = "PASS", *,
                 review: bool = True) -> None:
        self.folder, self.events = root / "scratch", list[str]()
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir(parents=True)
        self.kernel = KernelToBenchmark(
            project=harness_case.project(root), source="rmsnorm.c", entry="rmsnorm",
            traced=weights.parse(harness_case.TRACED.encode(), "calls.csv"),
            traced_file="calls.csv", device="cpu", language="c")
        command = f"{harness_case.agent(root)} {harnesses} {verdicts}"
        self.author = HarnessAuthor(
            worker=CliWorker([CliSpec(name="agent", command=command)]).work, backend="cli",
            option="agent", review=review, bench=worker_bench.bench(
                self.kernel.target, inventory.find("cpu"), root, self.scratch, edit=(NAME,)))

    def run(self) -> HarnessRecord:
        return harness_author.write(self.kernel, self.author, self.folder,
                                    limit_s={**LIMIT_S, "profile": 5.0},
                                    on_event=self.events.append)

    def prompt(self, name: str) -> str:
        return (self.scratch / "home" / f"prompt-{name}").read_text()


def test_a_harness_that_passes_is_frozen_read_only_with_its_hash(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "good")
    source = (flow.kernel.project / "rmsnorm.c").read_bytes()
    record = flow.run()
    assert (flow.kernel.project / "rmsnorm.c").read_bytes() == source
    assert sorted(path.name for path in flow.kernel.project.iterdir()) == [
        "calls.csv", "kopt_harness.json", NAME, "rmsnorm.c"]
    path = flow.kernel.project / NAME
    assert record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert generated_harness.recorded(flow.kernel.project) == record
    assert (record.attempts, record.configurations_from) == (1, "calls.csv")
    assert len(record.configurations) == 3


@pytest.mark.slow
def test_the_generator_gets_its_prompt_and_the_traced_configurations(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "good", review=False)
    flow.run()
    prompt = flow.prompt("attempts-1")
    assert "Traced arguments win" in prompt and "rows=7 cols=33" in prompt
    assert "# Write kopt_harness.py for `rmsnorm` in `rmsnorm.c`" in prompt
    assert "## Repair" not in prompt


def test_a_rejected_harness_is_repaired_with_the_reason(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "nothing,wrong-reference,good", review=False)
    assert flow.run().attempts == 3
    assert "kopt_harness.py: does not exist" in flow.prompt("attempts-2")
    assert "rows=16 cols=64 is wrong" in flow.prompt("attempts-3")


@pytest.mark.slow
def test_a_review_that_finds_a_fault_leads_to_a_repair(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "good", "FAIL,PASS")
    assert flow.run().attempts == 2
    assert "the tolerance is too wide" in flow.prompt("attempts-2")
    assert "- benchmark: 3 rows" in flow.prompt("reviews-1")


def test_after_three_repairs_nothing_is_frozen(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "nothing,dies,absolute,not-python,good")
    with pytest.raises(Refused, match="no usable harness after 4 attempts: is not Python"):
        flow.run()
    assert "the model is not reachable" in flow.prompt("attempts-3")
    assert not (flow.kernel.project / NAME).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("verdict", "message"), [
    ("ESCALATE", "the verifier asks"), ("perhaps", "the verifier gave no verdict")])
def test_review_verdict_other_than_pass_or_fail_ends_without_a_harness(tmp_path: Path, verdict: str,
                                                                       message: str) -> None:
    flow = Flow(tmp_path, "good", verdict)
    with pytest.raises(Refused, match=message):
        flow.run()
    assert not (flow.kernel.project / NAME).exists()

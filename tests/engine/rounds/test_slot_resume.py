"""A kill between a decision and the end of its slot changes no record of the campaign.

Slots of other rounds may have the same name.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history import round_resume
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Candidate, Slot
from engine.journal.write import Writer
from engine.lineage.promote import Keeper
from engine.rounds.active_round import RoundSlots
from engine.task import Task
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns, clocked_host, killed_campaign
from tests.support.engines.rollback_case import GAINS, KERNEL

GAIN_A, GAIN_B = (KERNEL.replace(f"{name} = 60.0", GAINS[name]) for name in "AB")
TASK = Task(slot="fixed", kind="fixed", backend="cli", hypothesis="h", bottleneck="", seed=1,
            trials=0)


def create(root: Path, handed_in: dict[str, dict[str, str]], **fields: Any) -> Setup:
    """Create the same campaign every time, with patches that replace files."""
    manifest = {**killed_campaign.MANIFEST, "max_iterations": 1, **fields}
    repos.project(root / "p", {"bench.py": killed_campaign.BENCH, "kernel.py": KERNEL,
                               "manifest.yaml": yaml_document.dump(manifest)})
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(time, "time", lambda: clocked_host.AT)
        setup = campaigns_of.create(root / "w", root / "p" / "manifest.yaml")
    for name, files in handed_in.items():
        hand_in(setup, name, **files)
    return setup


def hand_in(setup: Setup, name: str, **files: str) -> None:
    benchmark_case.patch(Path(setup.manifest.project) / "manifest.yaml",
                         setup.folder.inbox / f"{name}.patch", **files)


def decisions(setup: Setup) -> list[DecisionRow]:
    with campaigns.reading(setup) as reader:
        return reader.decisions(setup.id)[::-1]


def same_when_killed(root: Path, handed_in: dict[str, dict[str, str]], kills: tuple[str, ...],
                     **fields: Any) -> Setup:
    """Compare a campaign that is killed at each of the steps with an undisturbed one."""
    made = {}
    for name, steps in (("undisturbed", ()), ("killed", kills)):
        setup = create(root / name, handed_in, **fields)
        for step in steps:
            assert killed_campaign.is_killed(setup, step), step
        assert killed_campaign.host(setup).wait(120) == 0
        assert not campaigns.candidates(setup, "captured", "keeping")
        reasons = [(d.kind, re.sub("again on [0-9a-f]+", "again on a commit", d.reason))
                   for d in decisions(setup)]
        made[name] = campaigns.slots(setup), reasons, killed_campaign.records(setup)
    assert made["killed"] == made["undisturbed"] and len(made["killed"][2]) >= 7
    return setup


@pytest.mark.slow
def test_kill_between_decision_and_slot_leaves_no_trace(tmp_path: Path) -> None:
    setup = same_when_killed(tmp_path, {
        "a": {"kernel_py": GAIN_A}, "b": {"kernel_py": GAIN_B},
        "frozen": {"bench_py": killed_campaign.BENCH + "# mine\n"},
        "slower": {"kernel_py": KERNEL.replace("D = 60.0", "D = 90.0")},
    }, ("decided.reject", "decided.regression", "retry.captured"))
    stages = sorted(stage for stage, _ in campaigns.slots(setup).values())
    assert stages == ["kept", "kept", "regression", "reject"]
    reasons = [d.reason for d in decisions(setup) if d.kind == "runner-up"]
    assert sum("tried again on " in reason for reason in reasons) == 1
    assert not any("already" in reason for reason in reasons)


@pytest.mark.slow
def test_kill_while_gains_join_the_waiting_line_leaves_no_trace(tmp_path: Path) -> None:
    setup = same_when_killed(tmp_path, {
        "a": {"kernel_py": GAIN_A}, "b": {"kernel_py": GAIN_B},
    }, ("line.committed", "line.recorded", "retry.captured", "line.branch"), approval="review")
    assert [d.kind for d in decisions(setup)] == ["ask", "runner-up", "ask"]
    assert [stage for stage, _ in campaigns.slots(setup).values()] == ["waiting", "waiting"]
    made = repos.git(setup.repo.git_dir, "cat-file", "--batch-all-objects", "--batch-check")
    commits = {line.split()[0] for line in made.splitlines() if " commit " in line}
    assert commits == set(repos.git(setup.repo.git_dir, "rev-list", setup.repo.tip).split())


@pytest.mark.slow
def test_rolled_back_change_is_refused_in_another_form(tmp_path: Path) -> None:
    spaced = {cost: KERNEL.replace("A = 60.0", f"A{' ' * cost}= 5.0") for cost in (2, 3)}
    setup = create(tmp_path, {"first": {"kernel_py": spaced[2]}}, max_iterations=3,
                   format_command="sed -i 's/  */ /' kernel.py",
                   full_test_command="python -c 'import kernel; assert kernel.A == 60'")
    assert campaigns.run(setup).error is None
    [kept] = campaigns.candidates(setup, "kept")
    assert campaigns.campaign(setup).best_commit == setup.repo.base != kept.commit
    hand_in(setup, "second", kernel_py=spaced[3])
    assert campaigns.run(setup).error is None
    last = decisions(setup)[-1]
    assert (last.kind, last.reason) == (
        "reject", f"its formatted form is known as {kept.id}, which is rolled back")
    slots = campaigns.slots(setup, 3)
    assert [stage for stage, _ in slots.values()] == ["reject"]


def journal(setup: Setup, writer: Writer) -> dict[str, Candidate]:
    """Record slot `fixed` at work in rounds 2 and 3, and candidate a; return a, b and c."""
    writer.put_slots([Slot(campaign=setup.id, round=n, slot="fixed", kind="fixed", backend="cli",
                           hypothesis="h", bottleneck="", device="cpu", stage="working",
                           started_at=1.0) for n in (2, 3)])
    made = {name: Candidate(
        campaign=setup.id, id=name * 12, round=n, slot="fixed", base_commit=base, base_tree=base,
        patch_path="x", patch_sha256="x", hypothesis="h", bottleneck="", state="captured",
        created_at=float(n)) for name, n, base in (("a", 2, "0"), ("b", 3, "1"), ("c", 3, "2"))}
    assert writer.add_candidate(made["a"], TASK)
    return made


def test_candidate_of_another_round_leaves_slot_of_same_name_alone(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    writer, reader = Writer(setup.workspace), Reader(setup.workspace)
    made = journal(setup, writer)
    assert writer.add_candidate(made["c"], form_of=made["a"].id)  # approved, on a moved base
    assert (
        round_resume.progress_of(reader, setup.id, 3) == round_resume.RoundProgress()
    )  # its worker has not finished
    assert round_resume.progress_of(reader, setup.id, 2).undecided == {"fixed"}
    assert writer.add_candidate(
        made["b"], TASK
    )  # now it has finished, and must repair the result
    writer.add_decision(setup.id, made["b"].id, "repair", "wrong", round=3, actor="engine")
    writer.set_candidate_state(setup.id, made["b"].id, "closed")
    begun = round_resume.progress_of(reader, setup.id, 3)
    assert begun.first_attempt_done == {"fixed"}
    assert [candidate.id for candidate in begun.retrying] == [made["b"].id]
    assert not begun.undecided

    context = EngineContext.__new__(EngineContext)
    context.setup, context.writer, context.reader, context.round = setup, writer, reader, 3
    slots = RoundSlots(Keeper(context), 3)
    for name, stage in (("a", "working"), ("c", "working"), ("b", "tie")):
        slots.end_slot_of(made[name], "tie", "no gain")
        assert campaigns.slots(setup, 3)["fixed"][0] == stage
    formatted = msgspec.structs.replace(made["b"], id="d" * 12)
    assert writer.add_candidate(formatted, form_of=made["b"].id)
    slots.end_slot_of(formatted, "kept", "faster")
    assert campaigns.slots(setup, 3)["fixed"][0] == "kept"
    reader.close()
    writer.close()


def test_restarted_slots_keep_their_order(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    writer = Writer(setup.workspace)
    planned = [Slot(campaign=setup.id, round=2, slot=name, kind="fixed", backend="cli",
                    hypothesis="h", bottleneck="", device="cpu") for name in "abc"]
    writer.put_slots(planned)
    writer.end_slot(setup.id, 2, "a", stage="ended", candidate="x")
    writer.put_slots(planned[:1])
    with campaigns.reading(setup) as reader:
        assert [slot.slot for slot in reader.slots(setup.id, 2)] == ["a", "b", "c"]
        assert reader.slots(setup.id, 2)[0].stage == planned[0].stage
    writer.close()

"""Tests the scope of slots, rounds and candidates: all config classes or one class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.round_plan import plan
from engine.records import writer
from engine.task import GLOBAL, Task, scope_of
from harness.verdict import Row
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.page_case import SPLIT
from tests.support.dashboards.records_case import KEPT
from tests.support.engines import campaigns
from tests.support.searches.plan_case import AGENT, plan_inputs
from tests.support.searches.plan_case import tunable as one_tunable


def tunable(rank: int, config_class: str, *names: str) -> TunableBottleneck:
    bottleneck = one_tunable(rank, *names)
    return msgspec.structs.replace(bottleneck, bottleneck=msgspec.structs.replace(
        bottleneck.bottleneck, config_class=config_class))


def scopes(**fields: Any) -> dict[str, str]:
    bottlenecks = (tunable(1, "tall", "A", "B"), tunable(2, "odd", "C"), tunable(3, "", "A"))
    return {
        task.slot: task.scope
        for task in plan(plan_inputs(**{"bottlenecks": bottlenecks, **fields}))
    }


def test_slot_has_the_class_of_its_bottleneck_as_scope() -> None:
    planned = scopes(slots=8, round=3)
    assert [planned[f"planned-{n}"] for n in (1, 2, 3, 4)] == ["tall", "odd", GLOBAL, "tall"]


def test_work_on_every_class_is_global() -> None:
    """A search of all knobs, a template, a submitted patch and a split concern every class."""
    planned = scopes(slots=4, templates=("blocked",), inbox=(Path("/in/a.patch"),), may_split=True)
    assert {planned[slot] for slot in ("fixed", "rewrite-blocked", "inbox-1", "split")} == {GLOBAL}
    assert any(task.backend == "split" for task in plan(plan_inputs(may_split=True)))


def test_agents_have_the_class_of_their_bottleneck_as_scope() -> None:
    agents = PoolSpec(
        mode="planned", backends=("cli",), cli=(AGENT, CliSpec(name="b", command="b"))
    )
    planned = scopes(slots=3, pool=agents)
    assert planned == {"planned-1": "tall", "planned-2": "odd", "fixed": "tall"}
    assert set(scopes(pool=agents, bottlenecks=()).values()) == {GLOBAL}


def test_every_scope_is_global_if_there_is_one_class() -> None:
    one_class = (tunable(1, "tall", "A"), tunable(2, "tall", "B"))
    assert set(scopes(bottlenecks=one_class).values()) == {GLOBAL}


@pytest.mark.parametrize(("slot_scopes", "scope"), [
    ((), GLOBAL), (("tall",), "tall"), (("tall", "tall"), "tall"), (("tall", "odd"), GLOBAL),
    (("tall", GLOBAL), GLOBAL), ((GLOBAL,), GLOBAL)])
def test_scope_of_a_round_is_one_class_only_if_all_its_slots_have_that_scope(
        slot_scopes: tuple[str, ...], scope: str) -> None:
    assert scope_of([Task(slot=f"s{n}", kind="planned", backend="cli", hypothesis="h", seed=0,
                          bottleneck="b", trials=0, scope=slot_scope)
                     for n, slot_scope in enumerate(slot_scopes)]) == scope


def test_interrupted_round_keeps_its_scope(tmp_path: Path) -> None:
    """The engine that resumes the round may have only slots of another scope left to start."""
    _, writer = case.begin(tmp_path)
    for scope in ("tall", GLOBAL):
        writer.start_round(msgspec.structs.replace(samples.round_(2), scope=scope))
    assert [round.scope for round in Reader(tmp_path).rounds("rms")] == ["all", "tall"]


@pytest.mark.slow
def test_campaign_records_a_round_that_attacks_one_class(tmp_path: Path) -> None:
    classes = [{"name": "small", "shape": {"n": 3000}}, {"name": "large", "shape": {"n": 30000}}]
    setup = campaigns.create(tmp_path, task={"classes": classes}, pool={
        "slots": 1, "backends": ["cli"], "cli": [{"name": "idle", "command": "test {prompt}"}],
        "skip_profile": True})
    assert campaigns.run(setup).error is None
    with campaigns.reading(setup) as reader:
        first, second = reader.rounds(setup.id)
        slots = reader.slots(setup.id, 2)
    assert first.scope == GLOBAL and second.scope in ("small", "large")
    assert [slot.scope for slot in slots] == [second.scope]
    assert f"in {second.scope}" in slots[0].bottleneck
    summary_text = (setup.folder.round(2) / "summary.md").read_text()
    assert f"- scope: {second.scope}\n" in summary_text and "; scope: " not in summary_text


# The files for people

def keep(workspace: Path, source: bytes = b"", **fields: Any) -> tuple[writer.Records, Writer]:
    """Record a global round in which the candidate of a one-class slot is kept."""
    made, writer = case.begin(workspace)
    writer.start_round(msgspec.structs.replace(samples.round_(2), scope=GLOBAL))
    writer.put_slots([samples.slot("planned-1", round=2, hypothesis="move less", scope="tall"),
                      samples.slot("fixed", round=2, hypothesis="all knobs", scope=GLOBAL)])
    path = made.folder.patches / "c1.patch"
    path.write_text(case.PATCH)
    task = Task(slot="planned-1", kind="planned", backend="cli", hypothesis="move less", seed=0,
                bottleneck="b1", trials=0, scope="tall")
    writer.add_candidate(samples.candidate("c1", round=2, slot="planned-1", hypothesis="move less",
                                           patch_path="patches/c1.patch"), task)
    case.keep(writer, made.folder, 2, "c1", KEPT, **fields)
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.5, summary="1 keep")
    made.setup.repo.read = lambda commit, path: (  # type: ignore[method-assign]
        b"" if commit == "b0" else source)
    made.write_all(Reader(workspace))
    return made, writer


def test_files_name_scopes_that_differ_from_the_rounds_scope(
        tmp_path: Path) -> None:
    rows = tuple(Row(config_class=name, correct=True, outcome=outcome, log_ratio=ratio)
                 for name, outcome, ratio in (("odd", "faster", 0.4), ("tall", "tie", 0.0)))
    made, _ = keep(tmp_path, rows=rows)
    summary, log = (made.folder.round(2) / "summary.md").read_text(), made.folder.log.read_text()
    assert "- scope: global\n" in summary and "- scope: global\n" in log
    assert "| move less; scope: tall |" in summary and "| all knobs |" in summary
    assert "- hypothesis: move less; scope: tall\n" in log
    assert "| all | " in made.folder.performance.read_text()  # the baseline
    assert "| odd | " in made.folder.performance.read_text()  # odd gained, not tall


def test_formatted_or_rebased_copy_of_a_candidate_has_its_scope(tmp_path: Path) -> None:
    """A copy made on a new best may belong to a later round that has a slot of the same name."""
    _, writer = keep(tmp_path)
    writer.add_candidate(samples.candidate("c2", round=3, slot="planned-1"), form_of="c1")
    writer.add_candidate(samples.candidate("c3", round=3, slot="planned-1"), form_of="c2")
    writer.add_candidate(samples.candidate("old", round=3, slot="planned-1"))
    scope_of_candidate = {entry.id: entry.scope for entry in Reader(tmp_path).candidates("rms")}
    assert scope_of_candidate == {"c1": "tall", "c2": "tall", "c3": "tall", "old": ""}


def test_kept_split_names_its_classes(tmp_path: Path) -> None:
    made, _ = keep(tmp_path, SPLIT.encode())
    line = "- kept for: block_size >= 1024 && mtp == 1 (block_size=1024,mtp=1), in kkkkkkkkkkkk\n"
    assert line in (made.folder.round(2) / "summary.md").read_text()
    assert line in made.folder.log.read_text()


def test_files_are_the_same_when_written_again(tmp_path: Path) -> None:
    made, _ = keep(tmp_path, SPLIT.encode())
    before = case.contents(made.folder.path)
    for path in (made.folder.log, made.folder.performance, made.folder.round(2) / "summary.md"):
        path.unlink()
    again = writer.Records(made.setup)
    again.write_all(Reader(tmp_path))
    assert case.contents(made.folder.path) == before

"""A journal of an older kopt is migrated with its contents, and its campaign can continue."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.campaign import setup as campaign_setup
from engine.history import history, round_resume
from engine.journal import lease, migrations
from engine.journal.decoded.recorded import verdict_of
from engine.journal.migrations import SCHEMA_VERSION
from engine.journal.read import Reader
from engine.journal.records import Slot
from engine.journal.write import Writer
from engine.planning import stagnation
from engine.planning.stagnation import TriedDirections
from engine.records import results_tsv
from engine.task import ModelAnswer
from harness.devices import inventory
from harness.errors import InputError
from tests.support.dashboards.recorded_workspace import execute, unpack
from tests.support.engines import campaigns
from tests.support.paths import DATA
from tests.support.programs.command_line import kopt

ID = "scale_c_cpu_20261123"
EXPECTED: dict[str, Any] = json.loads((DATA / "journal/expected.json").read_text())
AGENT = """
import sys
from pathlib import Path
source, prompt = Path("scale.c"), Path(sys.argv[1]).read_text()
assert "x[i] * 3.0f" in source.read_text() or "## Repair, attempt 1 of 3" not in prompt
source.write_text(source.read_text().replace("x[i] * 3.0f", "x[i] + x[i]"))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return unpack("schema_3.tar.xz", tmp_path)


@pytest.fixture
def reader(workspace: Path) -> Iterator[Reader]:
    opened = Reader(workspace)
    yield opened
    opened.close()


def schema_version(workspace: Path) -> int:
    connection = sqlite3.connect(workspace / "kopt.db")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return version


def all_slots(reader: Reader) -> list[Slot]:
    return [slot for round in reader.rounds(ID) for slot in reader.slots(ID, round.n)]


def test_opening_migrates_to_the_present_schema(workspace: Path) -> None:
    assert schema_version(workspace) == 3
    Reader(workspace).close()
    assert schema_version(workspace) == SCHEMA_VERSION


def columns(workspace: Path) -> dict[str, list[tuple[str, str, int]]]:
    connection = sqlite3.connect(workspace / "kopt.db")
    tables = [name for name, in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    columns_of = {table: [(name, kind, not_null) for _, name, kind, not_null, _, _
                          in connection.execute(f"PRAGMA table_info({table})")] for table in tables}
    connection.close()
    return columns_of


@pytest.mark.parametrize("name", ["schema_3.tar.xz", "schema_4.tar.xz"])
def test_a_migrated_journal_has_the_columns_of_a_new_one(name: str, tmp_path: Path) -> None:
    older = unpack(name, tmp_path)
    campaign = Reader(older).campaigns()[0].id
    Writer(tmp_path / "new").close()
    migrated, new = columns(older), columns(tmp_path / "new")
    assert migrated.keys() == new.keys()
    assert {table: sorted(rows) for table, rows in migrated.items()} == {
        table: sorted(rows) for table, rows in new.items()}
    writer = Writer(older)
    lease.acquire(writer, campaign)
    answer = ModelAnswer(round=2, slot="fixed", model="m", cost_usd=0.5)
    writer.model_spent(campaign, answer)
    writer.model_spent(campaign, answer)
    [cost] = Reader(older).model_costs(campaign)
    assert (cost.steps, cost.cost_usd, cost.unpriced) == (2, 1.0, 0)


def test_migrated_rows_keep_their_values(reader: Reader) -> None:
    campaign = reader.campaign(ID)
    assert campaign is not None
    assert EXPECTED["campaign"].items() <= msgspec.to_builtins(campaign).items()
    assert [c.id for c in reader.candidates(ID, states=("kept",))] == EXPECTED["kept"]
    assert [[v.id, v.candidate, v.purpose, v.valid, v.correct, v.speedup, v.low, v.high]
            for v in reversed(reader.verdicts(ID))] == EXPECTED["verdicts"]
    assert all(verdict_of(row).speedup == row.speedup for row in reader.verdicts(ID))
    assert [[d.candidate, d.kind, d.reason]
            for d in reversed(reader.decisions(ID))] == EXPECTED["decisions"]
    assert [round.outcome for round in reader.rounds(ID)] == EXPECTED["outcomes"]
    assert [[s.round, s.slot, s.hypothesis] for s in all_slots(reader)] == EXPECTED["hypotheses"]


def test_candidates_have_their_tasks_and_scopes(reader: Reader) -> None:
    candidates = reader.candidates(ID)
    assert len(candidates) == len(EXPECTED["candidates"])
    for candidate, expected in zip(candidates, EXPECTED["candidates"], strict=True):
        fields = msgspec.to_builtins(candidate)
        assert {name: fields[name] for name in expected if name != "task"} == {
            name: value for name, value in expected.items() if name != "task"}
        task = json.loads(json.dumps(msgspec.to_builtins(reader.task(ID, candidate.id))))
        renamed = {"mend": "repair", "divide": "split"}
        assert {renamed.get(name, name): value
                for name, value in expected["task"].items()}.items() <= task.items()


def test_slots_have_the_directions_that_their_hypotheses_name(reader: Reader) -> None:
    slots = all_slots(reader)
    tried = TriedDirections.of(slots)
    assert sorted(map(sorted, tried.knobs)) == EXPECTED["moved"]
    assert tried.ideas == {("blocking", "memory", "small"),
                           ("wide-instructions", "memory", "small")}
    assert {slot.option for slot in slots} == {"agent", "half.patch", ""}
    assert {slot.subagent for slot in slots} == {""}  # a column that schema 6 has added


def test_ideas_in_the_migration_from_schema_3_are_those_of_reviews() -> None:
    deepest = stagnation.review(4)
    assert deepest is not None
    script = Path(migrations.__file__).with_name("schema_3_to_4.sql").read_text()
    keys = re.findall(r"^ +\('.*', '(.*)'\)[,;]$", script, re.MULTILINE)
    assert sorted(keys) == sorted(idea.key for idea in deepest.ideas)


def test_migration_preserves_the_history_and_the_interrupted_round(reader: Reader) -> None:
    past = history.read(reader, ID)
    assert (past.best, past.tally.without_gain) == (EXPECTED["best"], EXPECTED["without_gain"])
    assert [trial.candidate for trial in past.recent()] == EXPECTED["regressions"]
    progress = round_resume.progress_of(reader, ID, 6)
    assert {"through": sorted(progress.first_attempt_done), "undecided": sorted(progress.undecided),
            "again": [candidate.id for candidate in progress.retrying]} == EXPECTED["resume"]


def test_migration_preserves_results_tsv(reader: Reader) -> None:
    page = results_tsv.page(reader, ID, model="scale", gpu="AMD EPYC")
    assert page == EXPECTED["results_tsv"]


@pytest.mark.parametrize(("reason", "kept"), [
    ("max_iterations: 8 rounds done; {doubt}", "max_iterations: 8 rounds done"),
    ("{doubt}", "")])
def test_doubt_about_the_best_is_separated_from_the_reason(workspace: Path, reason: str,
                                                           kept: str) -> None:
    doubt = "the best was not accepted: it has no verdict against the baseline"
    execute(workspace, "UPDATE campaigns SET reason = ?", reason.format(doubt=doubt))
    campaign = Reader(workspace).campaign(ID)
    assert campaign is not None
    assert (campaign.reason, campaign.doubt) == (kept, doubt)
    assert campaign.outcome == reason.format(doubt=doubt)


@pytest.mark.parametrize(("reason", "is_fault"), [
    ("could not be judged: busy", True), ("could not be kept: moved", True), ("wrong", False)])
def test_rejects_for_a_fault_of_the_machine_are_marked_as_faults(workspace: Path, reason: str,
                                                                 is_fault: bool) -> None:
    execute(workspace, "UPDATE decisions SET kind = 'reject', reason = ?", reason)
    assert {d.is_fault for d in Reader(workspace).decisions(ID)} == {is_fault}


@pytest.mark.parametrize(("kind", "reason", "share"), [
    ("tie", "1.03x [0.99, 1.07]; near gain of 3.0%, not sure; large: tie", 0.03),
    ("tie", "1.00x [0.99, 1.01]; large: tie", None),
    ("reject", "build failed: near gain of 3.0%, not sure; ", None)])
def test_near_gains_of_schema_8_are_read_from_the_reasons(
        workspace: Path, kind: str, reason: str, share: float | None) -> None:
    execute(workspace, "UPDATE decisions SET kind = ?, reason = ?", kind, reason)
    assert {d.near_gain for d in Reader(workspace).decisions(ID)} == {share}


@pytest.mark.parametrize(("kind", "reason", "doubts"), [
    ("ask", "2.10x; wide 2.1x faster — asks because 2.10x is more than 2x; audit: W1",
     "2.10x is more than 2x; audit: W1"),
    ("ask", "2.10x", ""), ("tie", "1.00x — asks because", "")])
def test_doubts_of_schema_11_are_read_from_the_reasons(
        workspace: Path, kind: str, reason: str, doubts: str) -> None:
    execute(workspace, "UPDATE decisions SET kind = ?, reason = ?", kind, reason)
    decisions = Reader(workspace).decisions(ID)
    assert {(d.doubts, d.reason) for d in decisions} == {(doubts, reason)}
    assert {d.measured for d in decisions} == {reason.partition(" — ")[0] if doubts else reason}


@pytest.mark.parametrize(("kind", "reason", "is_rejection"), [
    ("reject", "rejected by {actor}: it changes the rounding", True),
    ("reject", "rejected by {actor}", True),
    ("reject", "rejected by another: no", False),
    ("reject", "wrong in large", False), ("tie", "rejected by {actor}", False)])
def test_rejections_of_schema_10_are_read_from_the_reasons(
        workspace: Path, kind: str, reason: str, is_rejection: bool) -> None:
    execute(workspace, "UPDATE decisions SET actor = 'ann@box', kind = ?, reason = ?", kind,
            reason.format(actor="ann@box"))
    assert {d.is_rejection for d in Reader(workspace).decisions(ID)} == {is_rejection}


def test_formatted_or_rebased_copy_of_a_candidate_has_its_scope(workspace: Path) -> None:
    first, second = EXPECTED["candidates"][1], EXPECTED["candidates"][2]
    execute(workspace, "UPDATE events SET payload = ? WHERE kind = 'candidate.captured' AND"
            " ref = ?", json.dumps({"of": first["id"], "round": 2}), second["id"])
    reader = Reader(workspace)
    form = reader.candidate(second["id"], ID)
    assert (form.form_of, form.scope) == (first["id"], first["scope"])
    assert reader.task(ID, form.id) is None


@pytest.mark.parametrize(("cells", "row"), [
    (["2.fixed.0", "rejected", "knobs", "m", "g", "screening", "REJECTED", "", "", "a", "b",
      '{"T": "x"}; not legal; too wide'], ({"T": "x"}, None, None, "not legal; too wide")),
    (["2.a.b.7", "tried", "knobs", "m", "g", "screening", "PASS", "3.5", "", "a", "b",
      '{"T": 1}; reported; slow'], ({"T": 1}, 3.5, "reported", "slow")),
    (["2.fixed.1", "tried", "knobs", "m", "g", "screening", "PASS", "3.5", "9", "a", "b",
      '{"T": "cut off…'], ({}, None, None, '3.5 us; {"T": "cut off…'))])
def test_trials_are_read_from_their_cells(workspace: Path, cells: list[str],
                                          row: tuple[object, ...]) -> None:
    execute(workspace, "UPDATE events SET payload = ? WHERE kind = 'trials'",
            json.dumps({"rows": [cells]}))
    trial = Reader(workspace).trials(ID)[0]
    assert (trial.config, trial.latency_us, trial.latency_kind, trial.reason) == row
    assert (trial.round, trial.number) == (2, int(cells[0][-1]))


def test_unreadable_tasks_and_trials_are_left_out(workspace: Path) -> None:
    execute(workspace, "UPDATE events SET payload = ? WHERE kind IN ('trials',"
            " 'candidate.captured')", json.dumps({"rows": [["2.fixed.0"]], "task": ["{cut off"]}))
    reader = Reader(workspace)
    assert reader.trials(ID) == []
    assert {reader.task(ID, candidate.id) for candidate in reader.candidates(ID)} == {None}


def test_journal_older_than_schema_3_is_refused(workspace: Path) -> None:
    execute(workspace, "PRAGMA user_version=2")
    with pytest.raises(InputError, match=r"too old \(schema 2, the oldest that can be read is 3\)"):
        Reader(workspace).rounds(ID)


@pytest.mark.parametrize("words", [("status",), ("show", ID), ("show", EXPECTED["kept"][0]),
                                   ("report", ID), ("events", ID)])
def test_read_commands_work_on_recorded_journal(workspace: Path, words: tuple[str, ...]) -> None:
    finished = kopt(*words, workspace=workspace)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr and ID[:5] in finished.stdout


@pytest.mark.slow
def test_interrupted_campaign_continues(workspace: Path) -> None:
    execute(workspace, "UPDATE campaigns SET device = ?", inventory.find("cpu").label)
    setup = campaign_setup.open_campaign(workspace, ID)
    assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).state == "finished"
    with campaigns.reading(setup) as reader:
        decisions = [[d.candidate, d.kind] for d in reversed(reader.decisions(ID))]
        repaired = [c for c in reader.candidates(ID) if (task := reader.task(ID, c.id))
                    and task.repair is not None]
    before = [[candidate, kind] for candidate, kind, _ in EXPECTED["decisions"]]
    assert decisions[:len(before)] == before and len(decisions) > len(before)
    assert [(c.round, c.slot) for c in repaired] == [(6, "planned-1")]
    campaigns.consistent(setup)

"""Answers for programs follow the committed schemas, and all errors have one shape."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from docs import write_schemas
from kopt_tui.cli.parser import ErrorReport, answer_schema
from kopt_tui.main import VERBS
from tests.support.dashboards import recorded_workspace
from tests.support.json_schema import answer_faults, faults
from tests.support.programs.command_line import answer, kopt, write_campaign

FOR_PEOPLE = {"attach", "demo", "mcp"}
"""Verbs that open a screen or speak another protocol."""
RECORDED = sorted(path.name for path in (recorded_workspace.DATA / "journal").glob("*.tar*"))


def test_schemas_equal_their_committed_copy() -> None:
    committed = json.loads(write_schemas.FILE.read_text())
    found = write_schemas.changes(committed, write_schemas.document())
    assert not found, "what is gone or different breaks other people's programs; if that is " \
        "meant, say so in CHANGELOG.md, then run: make schemas"
    assert write_schemas.FILE.read_text() == write_schemas.text(), "run: make schemas"


def test_removed_and_changed_fields_are_named() -> None:
    before = write_schemas.document()
    after = copy.deepcopy(before)
    del after["$defs"]["Campaign"]["properties"]["phase"], after["verbs"]["gpus"]
    after["$defs"]["Row"]["properties"]["pairs"] = {"type": "string"}
    after["$defs"]["Slot"]["required"].remove("stage")
    lines = write_schemas.changes(before, after)
    assert [line.partition(":")[0] for line in lines] == [
        "Campaign.phase", "Row.pairs", "Slot.stage", "kopt gpus"]
    assert lines[0] == "Campaign.phase: gone" and lines[1].endswith('is now {"type": "string"} '
                                                                    'always')


def test_every_verb_for_programs_prints_the_schema_of_its_answers() -> None:
    known = write_schemas.answers()
    assert {name.split()[0] for name in known} == set(VERBS) - FOR_PEOPLE
    for name, types in known.items():
        schema = answer(kopt(*name.split(), "--schema"))
        assert schema == json.loads(json.dumps(answer_schema(*types)))
        assert schema["type"] == "object"
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", ["", *RECORDED])
def test_reading_verbs_answer_by_their_schema(name: str, tmp_path: Path) -> None:
    workspace = recorded_workspace.unpack(name, tmp_path) if name else tmp_path
    if not name:
        write_campaign(tmp_path)
    [row] = answer(kopt("status", "--json", workspace=workspace))["campaigns"]
    shown = answer(kopt("show", "--json", workspace=workspace))
    assert shown["campaign"] == row["campaign"] and shown["candidates"]
    for candidate in shown["candidates"]:
        one = answer(kopt("show", candidate["id"], "--json", workspace=workspace))
        assert one["candidate"] == candidate and one["verdicts"]
        patch = answer(kopt("diff", candidate["id"], "--json", workspace=workspace))
        assert patch["candidate"] == candidate["id"] and patch["patch"].startswith("diff --git")
    assert answer(kopt("report", "--json", workspace=workspace))["markdown"]
    lines = kopt("events", "-n", "0", "--json", workspace=workspace).stdout.splitlines()
    assert lines and not any(answer_faults(["events"], json.loads(line)) for line in lines)


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    workspace = str(tmp_path / "w\udcff")
    assert answer(kopt("status", "--json", "--workspace", workspace))["workspace"] == workspace


BAD = {
    "approve": "nosuch", "reject": "nosuch", "pause": "nosuch", "resume": "nosuch",
    "stop": "nosuch", "set": "nosuch rounds=1", "status": "nosuch", "show": "nosuch",
    "diff": "nosuch", "logs": "nosuch", "events": "nosuch", "report": "nosuch",
    "submit": "nosuch.patch", "merge": "nosuch", "prune": "nosuch", "run": "nosuch.yaml",
    "propose": "nosuch.yaml", "evaluate": "nosuch.yaml", "loop": "nosuch.yaml",
    "new": "nosuch.c", "manifest": "nosuch.yaml", "trace": "nosuch.yaml", "gpus": "nosuch",
    "doctor": "nosuch", "subagents": "nosuch", "subagents list": "--source nosuch.c",
    "subagents show": "nosuch", "subagents check": "nosuch", "subagents render": "nosuch",
    "subagents harness": "nosuch.c", "knowledge": "nosuch", "knowledge list": "nosuch",
    "knowledge show": "nosuch", "knowledge search": "", "knowledge excerpt": "nosuch",
    "knowledge strategies": "nosuch", "knowledge promote": "nosuch", "knowledge demote": "nosuch"}


SHORTENED = ("approve", "show", "evaluate", "subagents list")
"""Verbs, one of each kind, that are also run with --json shortened and with an unknown flag."""


def test_bad_input_gives_an_error_of_the_same_shape_from_every_verb(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    assert set(BAD) == set(write_schemas.answers())
    for name, words in BAD.items():
        more = [f"{name} --jso {words}", f"{name} --json --nosuch"] * (name in SHORTENED)
        for line in (f"{name} --json {words}", *more):
            done = kopt(*line.split(), workspace=tmp_path)
            [text] = done.stdout.splitlines()
            report = json.loads(text)
            assert faults(report, answer_schema(ErrorReport)) == [], line
            error = report["error"]
            assert done.returncode == error["exit_code"] == 2, line
            assert done.stderr.startswith("kopt: ") and done.stderr.count("\n") == 1, line
            assert error["what"] in done.stderr and error["fix"] in done.stderr

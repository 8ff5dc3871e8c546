"""The records in a kept commit depend on the journal alone, so that a repeated keep is the same."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.records.writer import Records
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT

TREE = "t" * 40


def of_keep(records: Records, reader: Reader, candidate: Candidate) -> dict[str, str]:
    [row] = reader.verdicts("rms", candidate=candidate.id, limit=1)
    files = records.of_keep(reader, candidate, TREE, reason="2.00x", verdict=row.id)
    return {path.removeprefix(".kopt/rms/"): data.decode() for path, data in files.items()}


def row_of(page: str, commit: str) -> str:
    return next(line for line in page.splitlines() if f"| {commit} |" in line)


def test_commit_lists_the_keeps_before_it_and_itself(tmp_path: Path) -> None:
    records, reader, writer = case.record_campaign(tmp_path)
    case.add_candidate(writer, records.folder, "c9", 8, "unroll by 8")
    writer.add_verdict("rms", "c9", samples.verdict("c9", speedup=2.0), purpose="verify")
    candidate = reader.candidate("c9")
    files = of_keep(records, reader, candidate)
    assert set(files) == {"performance.md", "logs/optimize.md", "verdicts/c9.json"}
    assert "| keep |" in row_of(files["performance.md"], KEPT[:12])
    assert "unroll by 8" in row_of(files["performance.md"], "this commit")
    writer.event("rms", "warning", message="another engine took over")
    assert of_keep(Records(records.setup), Reader(tmp_path), candidate) == files
    records.setup.manifest = msgspec.structs.replace(  # type: ignore[misc]
        records.setup.manifest, git_commit=False)
    assert of_keep(records, reader, candidate) == {}


def test_commit_on_the_waiting_line_lists_what_it_rests_on(tmp_path: Path) -> None:
    records, reader, writer = case.record_campaign(tmp_path)
    for name, commit in (("c9", "9" * 40), ("c10", "")):
        case.add_candidate(writer, records.folder, name, 8, f"idea of {name}")
        number = writer.add_verdict("rms", name, samples.verdict(name, speedup=2.0),
                                    purpose="verify")
        if commit:
            writer.add_decision("rms", name, "ask", "2.00x", round=8, doubts="it is large",
                                actor="engine", verdict=number, commit=commit)
            writer.set_candidate_state("rms", name, "waiting", commit=commit)
    page = of_keep(records, reader, reader.candidate("c10"))["performance.md"]
    assert "idea of c9" in row_of(page, "9" * 12) and "idea of c10" in row_of(page, "this commit")

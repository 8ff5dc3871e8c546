"""The files for people: what they say, and that the same journal makes the same bytes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import samples

from engine.journal.read import Reader
from engine.journal.records import Bottleneck
from engine.journal.write import Writer
from engine.records import pages, story
from engine.records.folder import Folder
from engine.records.write import Records
from engine.workers.cli import PROMPT, _prompt
from harness.verdict import Row, Transfer

TITLE = "scale: unrolled (1.50x)"


class Lineage:
    """What the records ask of git."""

    def message(self, commit: str) -> str:
        return f"{TITLE}\n\nlong"

    def read(self, commit: str, path: str) -> bytes:
        return f"kernel of {commit}\n".encode()


def records(tmp_path: Path) -> Records:
    folder = Folder.create(tmp_path / "campaign")
    setup = SimpleNamespace(id="rms", folder=folder, lineage=Lineage(),
                            target=SimpleNamespace(source="src/scale.c"),
                            manifest=SimpleNamespace(
                                decision=SimpleNamespace(score="kernel")))
    return Records(cast(Any, setup))


def lose(writer: Writer, n: int, name: str) -> None:
    """Record a round that was a regression."""
    writer.start_round(samples.round_(n))
    writer.put_slots([samples.slot("fixed", round=n, hypothesis=f"idea {n}", bottleneck="b1")])
    writer.add_candidate(samples.candidate(name, round=n, hypothesis=f"idea | {n}"))
    row = Row(config_class="tall", correct=True, latency_us=12.5, log_ratio=-0.22)
    number = writer.add_verdict("rms", name, samples.verdict(
        name, latency_us=12.5, speedup=0.8, speedup_low=0.79, speedup_high=0.81, rows=(row,)),
        purpose="verify")
    writer.add_decision("rms", name, "regression", "slower", round=n, actor="engine",
                        verdict=number)
    writer.set_candidate_state("rms", name, "closed")
    writer.end_slot("rms", n, "fixed", stage="regression", candidate=name)
    writer.spend("rms", n, seconds=12.0, trials=3)
    writer.end_round("rms", n, outcome="regression", summary="1 candidates: 1 regression",
                     best_speedup=1.5)


@pytest.fixture
def told(tmp_path: Path) -> tuple[Records, Reader, Writer]:
    """A campaign with a gain and then six regressions, at its end."""
    made = records(tmp_path)
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign(path=str(made.folder.path)))
    writer.start_round(samples.round_(1))
    writer.add_verdict("rms", "baseline", samples.verdict("baseline", speedup=1.0, speedup_low=0.99,
                                                          speedup_high=1.01), purpose="baseline")
    writer.end_round("rms", 1, outcome="baseline", best_speedup=1.0, summary="baseline")
    writer.start_round(samples.round_(2))
    writer.add_candidate(samples.candidate(round=2))
    transfer = Transfer(bucket="K1", decision="ACCEPT-as-real", reason="kernel only")
    number = writer.add_verdict("rms", "c1", samples.verdict(transfer=transfer), purpose="verify")
    writer.add_decision("rms", "c1", "keep", "1.5x", round=2, actor="engine", verdict=number,
                        commit="k" * 40)
    writer.set_candidate_state("rms", "c1", "kept", commit="k" * 40)
    writer.put_bottlenecks("rms", 2, [Bottleneck(
        campaign="rms", round=2, rank=1, id="b2.1", kernel="scale", config_class="tall",
        limiter="memory", metric="% of roofline", value=41.0, detail="d", advice="move less")])
    row = Row(config_class="tall", correct=True, latency_us=6.5)
    writer.add_verdict("rms", "k" * 12, samples.verdict(
        "k" * 12, latency_us=6.5, speedup=1.54, speedup_low=1.5, speedup_high=1.6, rows=(row,)),
        purpose="headline")
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.5, summary="1 candidates: 1 keep")
    for n in range(3, 9):
        if n == 5:
            writer.event("rms", "stagnation", "5", round=5, depth="review", rollbacks=2,
                         demands="leave the old direction", directions=["A", "B", "C"])
        lose(writer, n, f"c{n}")
    writer.event("rms", "campaign.stop", "k" * 40, reason="5 consecutive measured regressions",
                 wall_s=90.4, trials=18, cost=0.5, waiting=1)
    return made, Reader(tmp_path), writer


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_journal_makes_the_same_bytes(told: tuple[Records, Reader, Writer]) -> None:
    made, reader, _ = told
    made.agree(reader)
    before = contents(made.folder.path)
    assert len(before) == 3 + 2 * 8
    made.agree(reader)
    assert contents(made.folder.path) == before
    for name in before:
        (made.folder.path / name).unlink()
    made.agree(reader)
    assert contents(made.folder.path) == before
    for name in before:  # whatever a person or a crash made of them
        (made.folder.path / name).write_bytes(b"\xff torn")
    made.agree(reader)
    assert contents(made.folder.path) == before


def test_files_grow_as_the_journal_does(told: tuple[Records, Reader, Writer]) -> None:
    """What was said stays said: who follows a log sees lines come and none go."""
    made, reader, writer = told
    made.agree(reader)
    before = contents(made.folder.path)
    identity = made.folder.log.stat().st_ino
    lose(writer, 9, "c9")
    made.agree(reader)
    for name, data in contents(made.folder.path).items():
        assert data.startswith(before.get(name, b""))
    assert made.folder.log.stat().st_ino == identity


def test_the_stop_summary_has_every_field(told: tuple[Records, Reader, Writer]) -> None:
    """Stop time, reason, BEST_COMMIT, its metrics, and the five newest regression summaries."""
    made, reader, _ = told
    made.agree(reader)
    for path in (made.folder.performance, made.folder.log):
        text = path.read_text().split("## Stop Summary")[1]
        for words in ("- stop time: 20", "- stop reason: 5 consecutive measured regressions",
                      f"- current BEST_COMMIT: {'k' * 40}",
                      "- current best metrics: 1.54x [1.50, 1.60] against the baseline; 6.500 us "
                      "(measured-cpu); tall 6.500 us",
                      "6 regressions and 6 rollbacks in a row",
                      "- spent: 90 s, 18 trials, cost 0.5",
                      "- candidates waiting for a person: 1", "- recent regressions: 5"):
            assert words in text
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| round ")]
        assert [row[0].strip("| ") for row in rows] == [f"round {n}" for n in range(4, 9)]
        attempt, at, base, candidate, idea, _, calls, gpu, delta, notes = rows[-1]
        assert (base, candidate, idea) == ("b0", "c8", "idea / 8 (against b1)")
        assert (calls, gpu, delta) == ("10.000 -> 12.500 us", "not scored", "+25.0%")
        assert attempt and at.startswith("20") and notes.startswith("tall 24.6% slower")


def test_a_stop_tells_how_things_were_then(told: tuple[Records, Reader, Writer]) -> None:
    made, reader, writer = told
    made.agree(reader)
    first = made.folder.performance.read_text()
    lose(writer, 9, "c9")
    writer.event("rms", "campaign.stop", "k" * 40, reason="stopped by ann", wall_s=99.0, trials=21)
    made.agree(reader)
    text = made.folder.performance.read_text()
    assert text.startswith(first) and text.count("## Stop Summary") == 2
    assert "| round 9 |" in text[len(first):] and "| round 9 |" not in first


def test_only_the_baseline_and_kept_gains_are_in_the_table(
        told: tuple[Records, Reader, Writer]) -> None:
    made, reader, _ = told
    made.agree(reader)
    table = made.folder.performance.read_text().split("## Stop")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| 20")]
    assert [row[2] for row in rows] == ["baseline", "keep"]
    assert rows[1][1] == "k" * 12 and rows[1][-1].strip("| ") == TITLE


def test_a_round_s_summary_has_its_slots_review_regression_and_transfer_check(
        told: tuple[Records, Reader, Writer]) -> None:
    made, reader, _ = told
    made.agree(reader)
    kept, lost = ((made.folder.round(n) / "summary.md").read_text() for n in (2, 5))
    for words in ("# Round 2\n", "- outcome: keep", "- best so far: 1.50x", "## Bottlenecks",
                  "| b2.1 | scale | tall | memory | 41 % of roofline | move less |",
                  "## Real-training transfer check", "- decision: ACCEPT-as-real (kernel only)"):
        assert words in kept
    for words in ("## Stagnation: review", "2 rounds in a row were rolled back. leave the old",
                  "- A\n- B\n- C\n", "| fixed | fixed | search | idea 5 | b1 | regression |",
                  "## Regression", "- spent: 12 s, 3 trials"):
        assert words in lost
    assert "## Stagnation: review" in made.folder.log.read_text()


def test_each_snapshot_is_what_was_best_then(told: tuple[Records, Reader, Writer]) -> None:
    made, reader, _ = told
    made.agree(reader)
    first, second = ((made.folder.round(n) / "kernel_snapshot" / "scale.c").read_text()
                     for n in (1, 2))
    assert first == "kernel of b0\n" and second == f"kernel of {'k' * 40}\n"


def test_a_campaign_that_kept_nothing_says_so(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    writer.start_round(samples.round_(1))
    writer.event("rms", "campaign.stop", "b0", reason="stopped by ann")
    found = story.read(Reader(tmp_path), "rms", "kernel")
    text = pages.performance(found, str)
    assert "current best metrics: not measured" in text and "- rounds: 0" in text


def test_an_agent_reads_what_was_tried_and_what_is_asked() -> None:
    target = SimpleNamespace(description="", op="scale", source="s.c", entry="scale", language="c",
                             reference="r.py:r", classes=())
    task = SimpleNamespace(hypothesis="unroll", bottleneck="",
                           brief="## Stagnation: \x1b[31mreview")
    text = _prompt(cast(Any, task), cast(Any, SimpleNamespace(target=target)))
    assert "## Stagnation: review\n\nWhen you end" in text
    task.brief = ""
    assert "Shapes (config classes): \n\nWhen you end" in _prompt(
        cast(Any, task), cast(Any, SimpleNamespace(target=target)))
    assert "{brief}" in PROMPT

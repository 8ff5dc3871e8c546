"""What a campaign learns: which gains and rejects become lessons, and when they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from engine.history import history, kept_commits, lessons
from engine.journal.read import Reader
from engine.planning import tips
from engine.records.writer import Records
from harness.verdict import Row, TraceStep, Transfer
from tests.support.agents.tips_case import MANIFEST, context
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT


def lessons_of(records: Records, workspace: Path) -> list[str]:
    past = history.read(Reader(workspace), "rms")
    return [lesson.text for lesson in lessons.of(past)]


def test_kept_gain_is_a_lesson(tmp_path: Path) -> None:
    made, _, _ = case.record_campaign(tmp_path)
    assert lessons_of(made, tmp_path) == [
        "helped: int n = 1; -> int n = 4 (unroll by 4); 1.50x [1.46, 1.54]; gained in all classes: "
        "tall 9.99 us -> 6.50 us; aimed at b1"]


def test_lesson_names_knobs_and_leaves_the_bottleneck_id_out(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path, 2)
    knobs = {"TILE": (16, 64), "UNROLL": (1, 4), "AHEAD": (0, 2), "LANES": (1, 8)}
    lines = [f"{sign}#define {name} {pair[at]}  // kopt: knob {name} in [{pair[0]}, {pair[1]}]"
             for at, sign in enumerate("-+") for name, pair in knobs.items()]
    case.keep(writer, made.folder, 2, "c1", KEPT, idea="canonical: every knob", alpha=0.05,
              bottleneck="b2.1 memory in tall (41 % of roofline)")
    (made.folder.patches / "c1.patch").write_text(
        "diff --git a/src/scale.c b/src/scale.c\n--- a/src/scale.c\n+++ b/src/scale.c\n"
        "@@ -1,4 +1,4 @@\n" + "\n".join(lines) + "\n")
    [text] = lessons_of(made, tmp_path)
    assert text == (
        "helped: TILE 16 -> 64, UNROLL 1 -> 4, AHEAD 0 -> 2, LANES 1 -> 8 (canonical: every knob); "
        "1.50x [1.46, 1.54] at alpha 0.05; aimed at memory in tall (41 % of roofline)")


def test_lesson_reaches_the_next_campaign(tmp_path: Path) -> None:
    """The next campaign starts with the lesson, which is in the file once."""
    _, _, writer = case.record_campaign(tmp_path)
    here = context(tmp_path, writer)
    tips.learn(here)
    tips.learn(here)
    event, = here.reader.events_of("rms", "tips.learned")
    assert b"unroll by 4" in event.payload
    writer.add_campaign(samples.campaign("next"))
    after = context(tmp_path, writer)
    after.setup.id = "next"  # type: ignore[misc]
    tips.read_before_baseline(after)
    assert "unroll by 4" in tips.known(after.reader, "next")[0]


W1 = Transfer(bucket="W1", decision="ACCEPT-with-asterisk", reason="W1",
              hit_rates=(TraceStep(step=1, weight_hits=1, other_hits=0),))


@pytest.mark.parametrize(("transfer", "taught"), [
    (None, True),
    (Transfer(bucket="K2", decision="ACCEPT-as-real", reason="r"), True),
    (W1, True),
    (Transfer(bucket="W2", decision="REJECT-as-overfit", reason="r"), False),
    (Transfer(bucket="W3", decision="REJECT-as-overfit", reason="r"), False),
    (Transfer(bucket="K1", decision="ACCEPT-with-asterisk", reason="r",
              skew=("k.py:3: M_per_group is constexpr",)), False),
], ids=["not audited", "K2", "W1", "W2", "W3", "fixed M_per_group"])
def test_gain_that_training_would_not_have_is_not_a_lesson(transfer: Transfer | None, taught: bool,
                                                           tmp_path: Path) -> None:
    """Such as a cache of an activation or a gradient, or an assumption on group sizes."""
    made, writer = case.begin(tmp_path, 2)
    case.keep(writer, made.folder, 2, "c1", KEPT, transfer=transfer)
    lessons_learned = lessons_of(made, tmp_path)
    assert bool(lessons_learned) == taught
    assert ("bounded" in "".join(lessons_learned)) == (transfer is W1)


NEXT = "e" * 40


@pytest.mark.parametrize("passes", [True, False])
def test_gain_is_written_only_after_its_final_acceptance(passes: bool,
                                                         tmp_path: Path) -> None:
    """It is accepted too if a commit on top of it passes: a round measures only its last keep."""
    made, writer = case.begin(tmp_path, 2)
    here = context(tmp_path, writer)
    file = tips.path(tmp_path, MANIFEST)
    for name, commit in (("c1", KEPT), ("c2", NEXT)):
        case.keep(writer, made.folder, 2, name, commit)
        tips.learn(here)
        assert not file.exists()
    wrong = {"correct": False, "latency_us": None, "latency_kind": None, "speedup": None,
             "speedup_low": None, "speedup_high": None}
    writer.add_verdict("rms", NEXT[:12], samples.verdict(NEXT[:12], **({} if passes else wrong)),
                       purpose="headline")
    tips.learn(here)
    assert file.exists() == passes and bool(lessons_of(made, tmp_path))
    if passes:
        return
    writer.set_campaign("rms", kind=kept_commits.ROLLBACK, best_commit="b" * 40, payload={
        "round": 2, "ends": True, "before": NEXT, "commit": "b" * 40, "reason": "r", "told": "t",
        "undone": [KEPT, NEXT]})
    tips.learn(here)
    assert lessons_of(made, tmp_path) == [] and not file.exists()


@pytest.mark.parametrize("again", [True, False])
def test_only_the_last_stop_has_a_final_report_with_the_lessons_of_its_time(
        again: bool, tmp_path: Path) -> None:
    """A later rollback removes nothing from a written report; an earlier stop becomes one line."""
    made, reader, writer = case.record_campaign(tmp_path)
    made.write_all(reader)
    back = {"round": 8, "ends": True, "before": KEPT, "commit": "b" * 40, "reason": "r",
            "told": "t", "undone": [KEPT]}
    writer.set_campaign("rms", kind=kept_commits.ROLLBACK, best_commit="b" * 40, payload=back)
    if again:
        writer.event("rms", "campaign.stop", KEPT, reason="again", wall_s=1.0, trials=18, cost=0.5,
                     waiting=1)
    made.write_all(reader)
    written = made.folder.log.read_bytes()
    made.folder.log.unlink()
    made.write_all(reader)
    assert made.folder.log.read_bytes() == written
    log = made.folder.log.read_text()
    [report] = log.split("## Final Report")[1:]
    assert ("helped: int n" in report) is not again
    assert log.count("## Stop Summary") == 1 and log.count("## Stopped: ") == again


@pytest.mark.parametrize(("reasons", "taught"), [
    (["wrong result: class a: nan", "wrong result: class b: off"], None),
    (["wrong result: class a: nan", "wrong result: class b: off", "wrong result: class a: 3"],
     "rejected 3 times: wrong result: class a: 3"),
    (["core class tall loses 6.1%; needs a split", "core class tall loses 9%; needs a split",
      "core class tall loses 11.2%; needs a split (0.9x)"],
     "rejected 3 times: core class tall loses 11.2%"),
    (["could not be judged: busy"] * 4, None),
    (["wrong result: x", "does not compile: y", "audit: z"], None),
    (["does not compile: line 3"] * 5, "rejected 3 times: does not compile: line 3"),
], ids=["twice", "three times", "other numbers", "the machine's faults", "unlike", "more"])
def test_reason_of_three_rejects_is_a_lesson(reasons: list[str], taught: str | None,
                                             tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    for n, reason in enumerate(reasons, 2):
        writer.start_round(samples.round_(n))
        case.reject(writer, made.folder, n, f"r{n}", reason,
                    is_fault=reason == "could not be judged: busy")
    lessons_learned = lessons_of(made, tmp_path)
    assert len(lessons_learned) == (taught is not None)
    assert taught is None or lessons_learned[0].startswith(taught)


def test_round_summary_names_its_lesson(tmp_path: Path) -> None:
    made, reader, _ = case.record_campaign(tmp_path)
    made.write_all(reader)
    first, second = ((made.folder.round(n) / "summary.md").read_text() for n in (2, 3))
    assert "## Reusable lessons\n\n- helped: int n = 1; -> int n = 4 (unroll by 4)" in first
    assert "## Reusable lessons" not in second
    assert "### Lessons for the next campaign" in made.folder.log.read_text()


def test_lesson_without_measured_rows_names_no_class(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path, 2)
    rows = (Row(config_class="tall", correct=True),)
    case.keep(writer, made.folder, 2, "c1", KEPT, rows=rows)
    assert cast(Any, lessons_of(made, tmp_path))[0].endswith("[1.46, 1.54]; aimed at b1")

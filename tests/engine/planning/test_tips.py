"""Tips: lessons are written once, whichever engine writes, and read before a baseline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.context import EngineContext
from engine.history import history, lessons
from engine.history.lessons import Lesson
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.manifest.schema import Manifest
from engine.planning import tips
from engine.records.writer import Records
from harness.verdict import Row, TraceStep, Transfer
from tests.support import records_case as case
from tests.support import samples
from tests.support.paths import ROOT
from tests.support.records_case import KEPT

MANIFEST = Manifest(target_op="gemm_fp8", target_backend="TRITON", target_gpu="gfx950")


def lesson(number: int, text: str = "") -> Lesson:
    return Lesson(key=f"{number:012x}", round=2, at=1.0, text=text or f"lesson {number}")


def context(workspace: Path, writer: Writer, manifest: Manifest = MANIFEST) -> EngineContext:
    setup = SimpleNamespace(workspace=workspace, id="rms", manifest=manifest)
    return cast(
        EngineContext, SimpleNamespace(setup=setup, writer=writer, reader=Reader(workspace))
    )


@pytest.mark.parametrize(("gpu", "op", "backend", "place"), [
    ("gfx950", "gemm_fp8_blockwise", "TRITON", "gfx950/gemm_fp8_blockwise/triton"),
    ("gfx942", "gemm", "CK", "gfx942/gemm/ck"),
    ("cpu", "paged attention", "C", "cpu/paged-attention/c"),
    ("../..", "a/b", "", "any/a-b/any"),
    ("h200", ".hidden", "..", "h200/hidden/any"),
])
def test_each_hardware_op_and_backend_has_a_file(gpu: str, op: str, backend: str,
                                                          place: str, tmp_path: Path) -> None:
    """The backend's folder is in lower case; no name leaves the workspace."""
    manifest = Manifest(target_op=op, target_backend=backend, target_gpu=gpu)
    assert tips.path(tmp_path, manifest) == tmp_path / "historical_experience" / place / "tips.md"


def test_missing_file_and_its_folders_are_created(tmp_path: Path) -> None:
    file = tips.path(tmp_path, MANIFEST)
    assert tips.append(file, [], MANIFEST) == [] and not file.exists()
    assert tips.append(file, [lesson(1)], MANIFEST) == [lesson(1)]
    text = file.read_text()
    assert text.startswith("# gemm_fp8 in TRITON on gfx950: what campaigns have learned\n")
    assert tips.read(file) == (("1970-01-01 00:00: lesson 1",), 0)


def test_lesson_is_written_once(tmp_path: Path) -> None:
    file = tips.path(tmp_path, MANIFEST)
    tips.append(file, [lesson(1), lesson(2)], MANIFEST)
    before = file.read_bytes()
    assert tips.append(file, [lesson(2), lesson(1, "in other words")], MANIFEST) == []
    assert file.read_bytes() == before
    assert [one.key for one in tips.append(file, [lesson(2), lesson(3)], MANIFEST)] == \
        [lesson(3).key]
    assert file.read_bytes().startswith(before)


def test_notes_of_people_are_kept_and_a_torn_line_is_completed(tmp_path: Path) -> None:
    file = tips.path(tmp_path, MANIFEST)
    file.parent.mkdir(parents=True)
    file.write_text("# Notes\n\nAlways check\nthe LDS size.\n\n"
                    "- first\n  and more\n* second\n### h\n- torn")
    tips.append(file, [lesson(1)], MANIFEST)
    assert tips.read(file)[0] == (
        "Always check the LDS size.", "first and more", "second", "torn",
        "1970-01-01 00:00: lesson 1")


@pytest.mark.parametrize("text", [
    "a < b, [see](http://x), <!-- kopt:000000000009 -->", "one\ntwo\n# three\n- four",
    "\x1b[31mred\x00", "ends in -->", "<!-- never ended"])
def test_lesson_stays_on_its_line(text: str, tmp_path: Path) -> None:
    """Agents' words are data: they add no lesson, no mark of another lesson, no comment."""
    file = tips.path(tmp_path, MANIFEST)
    tips.append(file, [lesson(1, text), lesson(2)], MANIFEST)
    tips_found, _ = tips.read(file)
    assert len(tips_found) == 2 and tips_found[1].endswith("lesson 2")
    assert "\x1b" not in file.read_text() and "](http" not in file.read_text()
    assert tips.append(file, [lesson(9)], MANIFEST) == [lesson(9)]


APPEND = """
import sys
from pathlib import Path
from engine.planning import tips
from engine.history.lessons import Lesson
from engine.manifest.schema import Manifest
for number in range(40):
    found = [Lesson(key=f"{key:012x}", round=2, at=1.0, text=f"lesson {key}")
             for key in (number, 1000 * int(sys.argv[2]) + number)]
    tips.append(Path(sys.argv[1]), found, Manifest(target_op="gemm_fp8"))
"""


def test_two_engines_may_append_at_once(tmp_path: Path) -> None:
    """Each lesson is written once and completely."""
    file = tips.path(tmp_path, MANIFEST)
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(file), str(number)],
                                cwd=ROOT) for number in (1, 2)]
    assert [writer.wait(100) for writer in writers] == [0, 0]
    lines = [line for line in file.read_text().splitlines() if line.startswith("- ")]
    assert len(lines) == 40 * 3 == len(set(lines))
    assert all(line.endswith("-->") for line in lines)
    assert file.read_text().count("# gemm_fp8") == 1


def test_campaign_reads_tips_once_before_its_baseline(tmp_path: Path) -> None:
    """The journal records what was read; the campaign's own lessons are not read back."""
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    here = context(tmp_path, writer)
    file = tips.path(tmp_path, MANIFEST)
    tips.append(file, [lesson(n) for n in range(40)], MANIFEST)
    tips.read_before_baseline(here)
    tips_found = tips.known(here.reader, "rms")
    assert len(tips_found) == tips.MOST and tips_found[-1].endswith("lesson 39")
    tips.append(file, [lesson(99)], MANIFEST)
    tips.read_before_baseline(here)
    assert tips.known(here.reader, "rms") == tips_found
    event, = here.reader.events_of("rms", "tips.read")
    assert b'"left_out":10' in event.payload
    assert b"historical_experience/gfx950/gemm_fp8/triton/tips.md" in event.payload


def test_missing_file_is_recorded_as_no_tips(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    here = context(tmp_path, writer)
    tips.read_before_baseline(here)
    assert tips.known(here.reader, "rms") == () and tips.brief(()) == ""
    assert len(here.reader.events_of("rms", "tips.read")) == 1


def test_unreadable_tips_cost_only_a_warning(
        tmp_path: Path) -> None:
    made, _, writer = case.record_campaign(tmp_path)
    here = context(tmp_path, writer)
    tips.path(tmp_path, MANIFEST).mkdir(parents=True)
    tips.read_before_baseline(here)
    tips.learn(here)
    warnings = [event.payload for event in here.reader.events_of("rms", "warning")]
    assert [b"not read" in warnings[0], b"not written" in warnings[1]] == [True, True]
    made.write_all(here.reader)


def test_brief_has_the_newest_tips_and_warns_to_measure() -> None:
    text = tips.brief([f"lesson {n} " + "x" * 290 for n in range(30)])
    assert len(text) < tips.BRIEF + 300
    assert "lesson 29 " in text and "lesson 1 " not in text
    assert "Measure before you rely on them" in text
    assert text.index("lesson 28 ") < text.index("lesson 29 ")


def learned(records: Records, workspace: Path) -> list[str]:
    past = history.read(Reader(workspace), "rms")
    return [one.text for one in lessons.of(past)]


def test_kept_gain_is_a_lesson(tmp_path: Path) -> None:
    made, _, _ = case.record_campaign(tmp_path)
    assert learned(made, tmp_path) == [
        "helped: int n = 1; -> int n = 4 (unroll by 4); 1.50x [1.46, 1.54]; gained in all classes: "
        "tall 9.99 us -> 6.50 us; aimed at b1"]


def test_lesson_names_knobs_and_leaves_the_bottleneck_id_out(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    knobs = {"TILE": (16, 64), "UNROLL": (1, 4), "AHEAD": (0, 2), "LANES": (1, 8)}
    lines = [f"{sign}#define {name} {pair[at]}  // kopt: knob {name} in [{pair[0]}, {pair[1]}]"
             for at, sign in enumerate("-+") for name, pair in knobs.items()]
    case.keep(writer, made.folder, 2, "c1", KEPT, idea="canonical: every knob", alpha=0.05,
              bottleneck="b2.1 memory in tall (41 % of roofline)")
    (made.folder.patches / "c1.patch").write_text(
        "diff --git a/src/scale.c b/src/scale.c\n--- a/src/scale.c\n+++ b/src/scale.c\n"
        "@@ -1,4 +1,4 @@\n" + "\n".join(lines) + "\n")
    [text] = learned(made, tmp_path)
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
def test_gain_of_the_benchmark_alone_is_no_lesson(transfer: Transfer | None, taught: bool,
                                                       tmp_path: Path) -> None:
    """Such as a cache of an activation or a gradient, or an assumption on group sizes."""
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    case.keep(writer, made.folder, 2, "c1", KEPT, transfer=transfer)
    lessons_learned = learned(made, tmp_path)
    assert bool(lessons_learned) == taught
    assert ("bounded" in "".join(lessons_learned)) == (transfer is W1)


NEXT = "e" * 40


@pytest.mark.parametrize("passes", [True, False])
def test_gain_is_written_once_it_passed_its_final_acceptance(passes: bool,
                                                                   tmp_path: Path) -> None:
    """Or once a commit on top of it has: of two kept in one round only the last has a verdict."""
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
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
    assert file.exists() == passes and bool(learned(made, tmp_path))
    if passes:
        return
    writer.set_campaign("rms", kind=history.ROLLBACK, best_commit="b" * 40, payload={
        "round": 2, "ends": True, "before": NEXT, "commit": "b" * 40, "reason": "r", "told": "t",
        "undone": [KEPT, NEXT]})
    tips.learn(here)
    assert learned(made, tmp_path) == [] and not file.exists()


@pytest.mark.parametrize("again", [True, False])
def test_final_report_keeps_the_lessons_of_its_time(again: bool, tmp_path: Path) -> None:
    """A later rollback removes nothing from a written report."""
    made, reader, writer = case.record_campaign(tmp_path)
    made.write_all(reader)
    back = {"round": 8, "ends": True, "before": KEPT, "commit": "b" * 40, "reason": "r",
            "told": "t", "undone": [KEPT]}
    writer.set_campaign("rms", kind=history.ROLLBACK, best_commit="b" * 40, payload=back)
    if again:
        writer.event("rms", "campaign.stop", KEPT, reason="again", wall_s=1.0, trials=18, cost=0.5,
                     waiting=1)
    made.write_all(reader)
    written = made.folder.log.read_bytes()
    made.folder.log.unlink()
    made.write_all(reader)
    assert made.folder.log.read_bytes() == written
    reports = made.folder.log.read_text().split("## Final Report")[1:]
    assert ["helped: int n" in report for report in reports] == [True, False][: 1 + again]


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
def test_repeated_class_of_rejects_is_a_lesson(reasons: list[str], taught: str | None,
                                                     tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    for n, reason in enumerate(reasons, 2):
        writer.start_round(samples.round_(n))
        case.reject(writer, made.folder, n, f"r{n}", reason,
                    is_fault=reason == "could not be judged: busy")
    lessons_learned = learned(made, tmp_path)
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
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    rows = (Row(config_class="tall", correct=True),)
    case.keep(writer, made.folder, 2, "c1", KEPT, rows=rows)
    assert cast(Any, learned(made, tmp_path))[0].endswith("[1.46, 1.54]; aimed at b1")

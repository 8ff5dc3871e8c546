"""Tips: lessons are written once, whichever engine writes, and read before a baseline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.history.lessons import Lesson
from engine.journal.write import Writer
from engine.manifest.schema import Manifest
from engine.planning import tips
from tests.support.agents.tips_case import MANIFEST, context
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.paths import ROOT


def lesson(number: int, text: str = "") -> Lesson:
    return Lesson(key=f"{number:012x}", round=2, at=1.0, text=text or f"lesson {number}")


@pytest.mark.parametrize(("gpu", "op", "backend", "folder"), [
    ("gfx950", "gemm_fp8_blockwise", "TRITON", "gfx950/gemm_fp8_blockwise/triton"),
    ("gfx942", "gemm", "CK", "gfx942/gemm/ck"),
    ("cpu", "paged attention", "C", "cpu/paged-attention/c"),
    ("../..", "a/b", "", "any/a-b/any"),
    ("h200", ".hidden", "..", "h200/hidden/any"),
])
def test_each_hardware_op_and_backend_has_a_file(gpu: str, op: str, backend: str,
                                                 folder: str, tmp_path: Path) -> None:
    """The backend's folder is in lower case; no name leaves the workspace."""
    manifest = Manifest(target_op=op, target_backend=backend, target_gpu=gpu)
    assert tips.path(tmp_path, manifest) == tmp_path / "historical_experience" / folder / "tips.md"


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
    assert [added.key for added in tips.append(file, [lesson(2), lesson(3)], MANIFEST)] == \
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
    assert [b"cannot be read" in warnings[0], b"cannot be written" in warnings[1]] == [True, True]
    made.write_all(here.reader)


def test_brief_has_the_newest_tips_and_warns_to_measure() -> None:
    text = tips.brief([f"lesson {n} " + "x" * 290 for n in range(30)])
    assert len(text) < tips.BRIEF + 300
    assert "lesson 29 " in text and "lesson 1 " not in text
    assert "Measure before you rely on them" in text
    assert text.index("lesson 28 ") < text.index("lesson 29 ")

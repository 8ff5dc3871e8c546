"""The final report: Markdown, and one HTML file that holds everything and runs nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.journal.read import Reader
from engine.records.report import charts
from engine.records.report.charts import Bar, Point
from engine.records.report.html_page import POLICY, html
from engine.records.report.markup import Markup, table, tag
from engine.records.writer import Records
from harness.verdict import Row
from tests.support import records_case as case
from tests.support import samples
from tests.support.command_line import NAME, kopt, told, write_campaign
from tests.support.records_case import KEPT

HOSTILE = "</title></style><script>alert('1')</script>" \
          "<img src=x onerror=\"a()\">&amp; ' \x1b]0;t\x07"


class Page(HTMLParser):
    """Checks that every element is closed, and remembers elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.said)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Records:
    made, reader, writer = case.told(tmp_path_factory.mktemp("report"))
    writer.event("rms", "tips.read", path="tips.md", lessons=["tiles of 64 spill"])
    case.end_to_end(writer, 1.1)
    made.agree(reader)
    return made


# One file, and nothing runs.

def test_the_page_needs_nothing_else_and_runs_nothing(campaign: Records) -> None:
    """No script, no frame, no style sheet, image, font or link from anywhere; and a policy."""
    page = Page(campaign.folder.page.read_text())
    names = {name for name, _ in page.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "img", "base", "form", "a",
                        "image", "use", "foreignobject"}
    given = {name for _, attributes in page.tags for name in attributes}
    assert not {name for name in given if name.startswith("on")} | given & {"src", "href", "style"}
    assert "url(" not in campaign.folder.page.read_text()
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}) in page.tags
    assert "default-src 'none'" in POLICY


@pytest.mark.parametrize("words", [
    "1.54x", "[1.49, 1.59]", "unroll by 4 (against b1)", "Progress", "Config classes", "6.500 us",
    "Real-training applicability audit", "S_real, kernels", "W_real", "R_real", "inflation gap",
    "What limits it now", "move less", "What to try next", "7 decisions", "idea | 8",
    "tiles of 64 spill", "python serve.py", "1.10x", "5 consecutive measured regressions",
    "ACCEPT-as-real", "rmsnorm on cpu"])
def test_the_page_tells(words: str, campaign: Records) -> None:
    assert words in Page(campaign.folder.page.read_text()).text


@pytest.mark.parametrize("words", [
    "**1.54x [1.49, 1.59]**", "## Real-training applicability audit", "- S_real (kernels: K1-K4)",
    "- inflation gap: +2.7%", "## What to try next\n\n1. A", "## End to end",
    "- tiles of 64 spill", "## Stop summary"])
def test_the_markdown_tells(words: str, campaign: Records) -> None:
    assert words in campaign.folder.report.read_text()


def test_times_are_to_the_minute(campaign: Records) -> None:
    times = re.findall(r"20\d\d-\d\d-\d\d \d\d:\d\d[:\d]*", campaign.folder.page.read_text())
    assert times and all(len(one) == len("2026-11-22 10:05") for one in times)


def test_charts_are_there_once_there_is_something_to_draw(campaign: Records,
                                                          tmp_path: Path) -> None:
    assert [name for name, _ in Page(campaign.folder.page.read_text()).tags].count("svg") == 3
    made, _ = case.begin(tmp_path / "other")
    found = Reader(tmp_path / "other")
    row = found.campaign("rms")
    assert row is not None and made.folder.path.is_dir()
    page = Page(html(found, row))
    assert "svg" not in {name for name, _ in page.tags}
    assert "No gain was kept" in page.text and "nothing to audit" in page.text


def test_no_worker_s_words_become_markup(tmp_path: Path) -> None:
    """Every name, hypothesis, reason and class comes from outside."""
    made, writer = case.begin(tmp_path, op=HOSTILE, device=HOSTILE, backend=HOSTILE)
    writer.start_round(samples.round_(2))
    row = Row(config_class=HOSTILE, correct=True, latency_us=9.0, incumbent_us=10.0, log_ratio=0.1,
              low=0.05, high=0.15, note=HOSTILE)
    case.keep(writer, made.folder, 2, "c1", KEPT, idea=HOSTILE, rows=(row,), actor=HOSTILE)
    case.headline(writer, KEPT, 1.1, rows=(row,))
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.1, summary=HOSTILE)
    case.reject(writer, made.folder, 2, "c2", HOSTILE)
    writer.event("rms", "tips.read", path=HOSTILE, lessons=[HOSTILE])
    case.end_to_end(writer, 1.1, HOSTILE)
    writer.event("rms", "campaign.stop", KEPT, reason=HOSTILE)
    made.agree(Reader(tmp_path))
    text = made.folder.page.read_text()
    page = Page(text)
    assert not {"script", "img"} & {name for name, _ in page.tags}
    assert "alert('1')" in page.text and "\x1b" not in text and "<script" not in text
    assert re.search(r"(?<!\\)<(script|img)", made.folder.report.read_text()) is None


# Markup and charts.

@given(st.text(), st.text())
def test_a_tag_holds_any_text_and_attribute_unchanged(text: str, attribute: str) -> None:
    page = Page(tag("p", text, title=attribute))
    assert [name for name, _ in page.tags] == ["p"]
    parsed = Page(tag("p", tag("b", text), text))
    assert [name for name, _ in parsed.tags] == ["p", "b"]


def test_only_markup_is_taken_as_markup() -> None:
    assert tag("p", "<b>", Markup("<i></i>")) == "<p>&lt;b&gt;<i></i></p>"
    assert tag("a", class_="x", stroke_width=1.50) == '<a class="x" stroke-width="1.5"></a>'
    assert "<thead>" not in table(("", ""), [("a", "b")]) and "<thead>" in table(("a",), [])


BESTS = st.lists(st.tuples(st.floats(0.01, 1e4), st.none() | st.floats(0.01, 1e4)), min_size=2,
                 max_size=120)


@given(BESTS)
def test_progress_is_drawn_within_its_frame(values: list[tuple[float, float | None]]) -> None:
    points = [Point(round=n, outcome="tie", best=best, tried=tried, title=f"round {n}")
              for n, (best, tried) in enumerate(values, 1)]
    _within(charts.progress(points))


BARS = st.lists(st.tuples(st.text(max_size=60), st.floats(0.01, 1e3)), min_size=1, max_size=100)


@given(BARS)
def test_bars_are_drawn_within_their_frame(values: list[tuple[str, float]]) -> None:
    drawn = charts.classes([Bar(name=name, value=value, low=value * 0.9, high=value * 1.1)
                            for name, value in values], "speedup by class")
    found = _within(drawn)
    assert len(found.findall(".//rect")) == min(len(values), charts.MOST_CLASSES)


def _within(drawn: str) -> ET.Element:
    """Parse a figure as XML and check that nothing lies outside of its frame."""
    figure = ET.fromstring(drawn)
    svg = figure.find("svg")
    assert svg is not None
    _, _, width, height = (float(part) for part in svg.attrib["viewBox"].split())
    for one in svg.iter():
        for name, limit in (("x", width), ("x1", width), ("x2", width), ("y", height),
                            ("y1", height), ("y2", height)):
            if name in one.attrib:
                assert -1 <= float(one.attrib[name]) <= limit + 1, (one.tag, one.attrib)
    path = svg.find("path")
    if path is not None:
        assert "nan" not in path.attrib["d"] and "inf" not in path.attrib["d"]
    return svg


def test_one_round_and_no_class_draw_nothing() -> None:
    one = Point(round=1, outcome="baseline", best=1.0, tried=None, title="")
    assert charts.progress([one]) == "" and charts.classes([], "none") == ""


# The command.

def test_kopt_report_writes_the_page(tmp_path: Path) -> None:
    """With --html, or to a file of that name; the same bytes each time."""
    write_campaign(tmp_path)
    shown = kopt("report", NAME, "--html", workspace=tmp_path).stdout
    file = tmp_path / "r.html"
    kopt("report", NAME, "-o", str(file), workspace=tmp_path)
    assert file.read_text() == shown and shown.startswith("<!doctype html>\n")
    assert "2.50x" in Page(shown).text
    done = kopt("report", NAME, "-o", str(tmp_path / "no" / "r.md"), workspace=tmp_path)
    assert done.returncode == 3 and "cannot write the report" in told(done)

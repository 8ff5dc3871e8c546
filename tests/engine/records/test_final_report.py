"""Tests the final report: Markdown, and one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history.campaign_view import read_with_manifest
from engine.journal.read import Reader
from engine.records.report import charts
from engine.records.report.campaign_report import html
from engine.records.report.charts import Chart, ProgressPoint, SpeedupBar
from engine.records.report.page import (
    POLICY,
    Headline,
    PageSection,
    PageTable,
    render_html,
    render_report,
)
from engine.records.writer import Records
from harness.verdict import Row
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT
from tests.support.programs.command_line import NAME, error_text, kopt, write_campaign

HOSTILE = "</title></style><script>alert('1')</script>" \
          "<img src=x onerror=\"a()\">&amp; ' \x1b]0;t\x07"


class Page(HTMLParser):
    """Checks that every element is closed, and collects elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    records, reader, writer = case.record_campaign(tmp_path_factory.mktemp("report"))
    writer.event("rms", "tips.read", path="tips.md", lessons=["tiles of 64 spill"])
    case.end_to_end(writer, 1.1)
    records.write_all(reader)
    return records


def test_page_loads_nothing_and_runs_nothing(records: Records) -> None:
    """It has no script, frame, style sheet, image, font or link, and a policy that forbids them."""
    page = Page(records.folder.page.read_text())
    names = {name for name, _ in page.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "img", "base", "form", "a",
                        "image", "use", "foreignobject"}
    used = {name for _, attributes in page.tags for name in attributes}
    assert not {name for name in used if name.startswith("on")} | used & {"src", "href", "style"}
    assert "url(" not in records.folder.page.read_text()
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}) in page.tags
    assert "default-src 'none'" in POLICY


@pytest.mark.parametrize("words", [
    "1.54x", "[1.49, 1.59]", "aimed at b1", "Progress", "Config classes", "6.500 us",
    "Real-training applicability audit", "S_real (kernels", "W_real", "R_real", "inflation gap",
    "What limits it now", "move less", "What to try next", "7 candidates", "idea | 8",
    "tiles of 64 spill", "python serve.py", "1.10x", "5 consecutive measured regressions",
    "ACCEPT-as-real", "rmsnorm on cpu"])
def test_report_page_shows_results_and_next_steps(words: str, records: Records) -> None:
    assert words in Page(records.folder.page.read_text()).text


@pytest.mark.parametrize("words", [
    "**1.54x [1.49, 1.59]**", "## Real-training applicability audit", "- S_real (kernels: K1-K4)",
    "- inflation gap: +2.7%", "## What to try next\n\n1. A", "## End to end",
    "1. tiles of 64 spill", "## Stop summary"])
def test_markdown_report_shows_results_and_next_steps(words: str, records: Records) -> None:
    assert words in records.folder.report.read_text()


def test_times_are_shown_to_the_minute(records: Records) -> None:
    times = re.findall(r"20\d\d-\d\d-\d\d \d\d:\d\d[:\d]*", records.folder.page.read_text())
    assert times and all(len(time) == len("2026-11-22 10:05") for time in times)


def test_charts_appear_once_there_is_something_to_draw(records: Records, tmp_path: Path) -> None:
    assert [name for name, _ in Page(records.folder.page.read_text()).tags].count("svg") == 3
    other, _ = case.begin(tmp_path / "other")
    reader = Reader(tmp_path / "other")
    row = reader.campaign("rms")
    assert row is not None and other.folder.path.is_dir()
    page = Page(html(read_with_manifest(reader, row)))
    assert "svg" not in {name for name, _ in page.tags}
    assert "No gain has been kept so far" in page.text and "nothing to audit" in page.text


def test_text_from_outside_never_becomes_markup(tmp_path: Path) -> None:
    """Names, hypotheses, reasons and classes all come from outside."""
    records, writer = case.begin(tmp_path, op=HOSTILE, device=HOSTILE, backend=HOSTILE)
    writer.start_round(samples.round_(2))
    row = Row(config_class=HOSTILE, correct=True, latency_us=9.0, incumbent_us=10.0, log_ratio=0.1,
              low=0.05, high=0.15, note=HOSTILE)
    case.keep(writer, records.folder, 2, "c1", KEPT, idea=HOSTILE, rows=(row,), actor=HOSTILE)
    case.headline(writer, KEPT, 1.1, rows=(row,))
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.1, summary=HOSTILE)
    case.reject(writer, records.folder, 2, "c2", HOSTILE)
    writer.event("rms", "tips.read", path=HOSTILE, lessons=[HOSTILE])
    case.end_to_end(writer, 1.1, HOSTILE)
    writer.event("rms", "campaign.stop", KEPT, reason=HOSTILE)
    records.write_all(Reader(tmp_path))
    text = records.folder.page.read_text()
    page = Page(text)
    assert not {"script", "img"} & {name for name, _ in page.tags}
    assert "alert('1')" in page.text and "\x1b" not in text and "<script" not in text
    assert re.search(r"(?<!\\)<(script|img)", records.folder.report.read_text()) is None


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_text_is_rendered_as_text(text: str, other: str) -> None:
    """Any text in a title, cell, item or paragraph leaves the page's elements unchanged."""
    def page(first: str, second: str) -> list[str]:
        chart = charts.speedups([SpeedupBar(name=first, value=1.5)], second)
        assert chart is not None
        section = PageSection(heading=first, chart=chart, paragraphs=[second], style="note",
                              tables=[PageTable(head=("commit",), rows=[(first,)], summary=second),
                                  PageTable(rows=[(second, first)])], items=[first, second])
        html = render_html(first, Headline(words=second), [section])
        return [name for name, _ in Page(html).tags]

    assert page(text, other) == page("a", "b")


def test_markup_in_text_is_escaped() -> None:
    html = render_html("<b>", Headline(gain="<i>", interval="'\""),
                       [PageSection(items=["</ol>&amp;"])])
    assert "<title>&lt;b&gt;</title>" in html and "<strong>&lt;i&gt;</strong>" in html
    assert "&#39;&#34;" in html and "<li>&lt;/ol&gt;&amp;amp;</li>" in html


def test_number_sign_is_escaped_only_where_it_makes_a_heading() -> None:
    text = render_report("t", Headline(), [PageSection(items=["#define N 8", "## all"])])
    assert "1. #define N 8" in text and "2. \\## all" in text


def test_table_without_head_has_no_head() -> None:
    def page(*head: str) -> str:
        table = PageTable(head=head, rows=[("a", "b")])
        return render_html("t", Headline(), [PageSection(tables=[table])])

    assert "<thead>" not in page() and "<thead>" in page("first", "second")


BESTS = st.lists(st.tuples(st.floats(0.01, 1e4), st.none() | st.floats(0.01, 1e4)), min_size=2,
                 max_size=120)


@given(BESTS)
def test_progress_chart_stays_within_its_frame(values: list[tuple[float, float | None]]) -> None:
    points = [ProgressPoint(round=n, outcome="tie", best=best, tried=tried, title=f"round {n}")
              for n, (best, tried) in enumerate(values, 1)]
    _expect_within_frame(charts.progress(points))


BARS = st.lists(st.tuples(st.text(max_size=60), st.floats(0.01, 1e3)), min_size=1, max_size=100)


@given(BARS)
def test_bars_stay_within_their_frame(values: list[tuple[str, float]]) -> None:
    chart = charts.speedups([SpeedupBar(name=name, value=value, low=value * 0.9, high=value * 1.1)
                             for name, value in values], "speedup by class")
    svg = _expect_within_frame(chart)
    assert len(svg.findall(".//rect")) == min(len(values), charts.MOST_CLASSES)


def _expect_within_frame(chart: Chart | None) -> ET.Element:
    """Parse a figure as XML and check that nothing lies outside its frame."""
    assert chart is not None
    page = render_html("a chart", Headline(), [PageSection(chart=chart)])
    svg = ET.fromstring(page[page.index("<svg"):page.index("</svg>") + len("</svg>")])
    _, _, width, height = (float(part) for part in svg.attrib["viewBox"].split())
    for element in svg.iter():
        for name, limit in (("x", width), ("x1", width), ("x2", width), ("y", height),
                            ("y1", height), ("y2", height)):
            if name in element.attrib:
                value = float(element.attrib[name])
                assert -1 <= value <= limit + 1, (element.tag, element.attrib)
    path = svg.find("path")
    if path is not None:
        assert "nan" not in path.attrib["d"] and "inf" not in path.attrib["d"]
    return svg


def test_one_round_or_no_class_draws_no_chart() -> None:
    point = ProgressPoint(round=1, outcome="baseline", best=1.0, tried=None, title="")
    assert charts.progress([point]) is None and charts.speedups([], "none") is None


def test_kopt_report_writes_the_page(tmp_path: Path) -> None:
    """`--html` and a file named `.html` give the same bytes."""
    write_campaign(tmp_path)
    shown = kopt("report", NAME, "--html", workspace=tmp_path).stdout
    file = tmp_path / "r.html"
    kopt("report", NAME, "-o", str(file), workspace=tmp_path)
    assert file.read_text() == shown and shown.startswith("<!doctype html>\n")
    assert "2.50x" in Page(shown).text
    done = kopt("report", NAME, "-o", str(tmp_path / "no" / "r.md"), workspace=tmp_path)
    assert done.returncode == 3 and "cannot write the report" in error_text(done)

"""The patch pane counts added and removed lines as git does."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopt_tui.snapshot.harmless import harmless_lines
from kopt_tui.widgets.patch_pane import PatchPane, patch_lines

LINES = ["int a;", "int b;", "\tint c;  ", "", " ", "-", "+", "--- a/x.c", "-- a/x.c", "++ b/x.c",
         "+++ b/x.c", "@@ -1,33 +1,45 @@", "@ -1 +1 @@", "diff --git a/x b/x", "index 1..2",
         "\\ No newline at end of file", "crlf\r", "\x1b[31mred", "\x0c", "日本", "x" * 1200]
contents = st.none() | st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(st.sampled_from(LINES), max_size=30),
    st.sampled_from(["", "\n"]))
trees = st.dictionaries(st.sampled_from(["x.c", "y.py", "z w.cu"]), contents, min_size=1)


def diff(folder: Path, *options: str) -> bytes:
    return subprocess.run(["git", "diff", "--no-index", "-M", *options, "old", "new"], check=False,
                          cwd=folder, capture_output=True).stdout


@settings(max_examples=20)
@given(old=trees, new=trees)
def test_added_and_removed_lines_are_those_that_git_counts(
        old: dict[str, str | None], new: dict[str, str | None]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for side, tree in (("old", old), ("new", new)):
            (Path(name) / side).mkdir()
            for path, text in tree.items():
                if text is not None:
                    (Path(name) / side / path).write_text(text, newline="")
        counts = [line.split(b"\t")[:2] for line in diff(Path(name), "--numstat").splitlines()]
        added, removed = (sum(int(pair[side]) for pair in counts) for side in (0, 1))
        patch = harmless_lines(diff(Path(name)))
    pane = PatchPane()
    for highlighted in (False, True):
        pane.content = patch_lines(patch, highlighted=highlighted), ""
        assert pane.title_note() == (f"+{added} -{removed}" if counts or patch else "")


@pytest.mark.parametrize(("header", "body", "note"), [
    ("@@ -1,2 +1,3 @@", "-a\n-b\n+c\n+d\n+e\n", "+3 -2"),
    ("@@ -0,0 +1 @@", "+c\n", "+1 -0"), ("@@ -1 +0,0 @@", "-c\n", "+0 -1"),
])
def test_lines_of_a_hunk_that_starts_at_line_1_are_counted_and_numbered(
        header: str, body: str, note: str) -> None:
    pane = PatchPane()
    patch = f"diff --git a/x.c b/x.c\n--- a/x.c\n+++ b/x.c\n{header}\n{body}"
    pane.content = patch_lines(patch, highlighted=False), ""
    assert pane.title_note() == note
    assert [line[0][0].strip() for line in pane.content[0][4:] if line[1][0] == "+"] == \
        [str(number + 1) for number in range(body.count("+"))]

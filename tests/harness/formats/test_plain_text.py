"""No text reaches a terminal with an escape sequence or a control character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.formats import text

HOSTILE = st.sampled_from([
    "\x1b[2J", "\x1b]0;t\x07", "\x9b31m", "\u202e", "\u200b", "\udcff", "\r", "\x7f", "\U000e0041",
    "\ufeff", "\n", "\t", "é", "日本", "[red]", "\u2028"])


@given(st.lists(HOSTILE | st.text(max_size=8), max_size=12).map("".join))
def test_escapes_and_control_characters_are_removed_and_other_text_kept(given: str) -> None:
    cleaned = text.plain(given, 10_000)
    assert not text._CONTROL.search(cleaned) and "\x1b" not in cleaned
    assert cleaned == text._CONTROL.sub("", text._ESCAPES.sub("", given.replace("\r", "\n")))

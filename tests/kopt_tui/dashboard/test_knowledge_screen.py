"""The Knowledge screen: the list, a search, and a page, also one with hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.knowledge import page_library
from kopt_tui.widgets.report_pane import markdown_lines
from tests.support.dashboards.dashboard_journal import HOSTILE, make
from tests.support.dashboards.dashboard_pilot import open_app, shown, until


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["narrow", "wide"])
async def test_a_page_is_found_opened_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               size: tuple[int, int]) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    mine = tmp_path / "kopt" / "knowledge" / "skills" / "mine" / "SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text(f"---\nsummary: my own\n---\n# Mine\n\n- one\n  item {HOSTILE}\n\n"
                    "| first | second |\n|---|---|\n"
                    f"| {'word ' * 30}last | end |\n\n````text\n```\n**as it is**\n````\n")
    make(tmp_path)
    app = open_app(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(pilot, "finished")
        await pilot.press("K")
        await until(pilot, "ops/gemm")
        assert all(page.name in shown(app) for page in page_library.built_in()[:6])
        await pilot.press("slash", *"second mine", "enter")
        await until(pilot, "1 of")
        await pilot.press("enter")
        text = await until(pilot, "• one item [red]x[/]")
        assert "**as it is**" in text and "last" in text and "\x1b" not in text
        await pilot.press("escape", "escape", "escape")
        await until(pilot, "rmsnorm c")
        assert len(app.screen_stack) == 1


def test_code_is_drawn_as_it_is_until_its_fence_ends() -> None:
    text = "# head\n```c\n# **not** a head\n| no | table |\n```\n**bold**"
    lines = ["".join(part for part, _ in line) for line in markdown_lines(text, 60)]
    assert lines == [" head", "   # **not** a head", "   | no | table |", " bold"]

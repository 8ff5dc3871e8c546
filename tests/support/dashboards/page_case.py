"""A dispatcher with one branch, and a reader of the tables in record pages."""

from __future__ import annotations

from engine.split.languages import conditions
from engine.split.languages.c_language import C
from engine.split.languages.language import Branch, DispatchBlock

SPLIT = C().dispatcher(
    DispatchBlock(entry="pa", default="pa_0", at=0, branches=(Branch(
        condition=conditions.parse("block_size >= 1024 && mtp == 1"), kernel="pa_1",
        note="block_size=1024,mtp=1"),)), C().items("void pa_0(int block_size, int mtp) {}")[0])


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a page's first table, by column."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head = _cells(lines[0])
    return [dict(zip(head, _cells(line), strict=True)) for line in lines[1:]
            if len(_cells(line)) == len(head)]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]

"""Prints Markdown: as it is into files and pipes, laid out for reading at a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import groupby

from kopt_tui.cli.output import print_table
from kopt_tui.cli.text_lines import print_text, terminal_width

_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])")
_BORDER = re.compile(r"(?<!\\)\|")
_ITEM = re.compile(r"(- |\d+\. )?")


def print_markdown(text: str) -> None:
    """Print Markdown; at a terminal lines break between words, and tables have columns."""
    if terminal_width(sys.stdout) is None:
        sys.stdout.write(text)
        return
    for is_table, block in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            _print_table(list(block))
            continue
        for line in block:
            mark = _ITEM.match(line)
            print_text(_ESCAPE.sub(r"\1", line), indent=len(mark[0]) if mark else 0)


def _print_table(lines: Sequence[str]) -> None:
    head, _, *rows = [[_ESCAPE.sub(r"\1", cell.strip()).replace("`", "")
                       for cell in _BORDER.split(line.strip())[1:-1]] for line in lines]
    print_table(head, rows, spare=("slot", "commit"))

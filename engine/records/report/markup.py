"""HTML and SVG that no text can break out of: whatever is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from harness.formats.text import plain

LONGEST = 2000


class Markup(str):
    """Text that is markup already, made by `tag` alone."""

    __slots__ = ()


Child = str | Iterable["Child"]
VOID = frozenset({"meta", "br"})


def tag(name: str, /, *children: Child, **attributes: str | float) -> Markup:
    """Return an element; `class_` is the attribute class, `stroke_width` is stroke-width."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
                    for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{together(children)}</{name}>")


def together(children: Iterable[Child]) -> Markup:
    """Return children one after the other, escaped unless they are markup."""
    return Markup("".join(_child(child) for child in children))


def table(head: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """Return a table; a head of empty words is left out."""
    top = [tag("thead", tag("tr", *(tag("th", word, scope="col") for word in head)))] \
        if any(head) else []
    body = tag("tbody", *(tag("tr", *(tag("td", one) for one in row)) for row in rows))
    return tag("div", tag("table", *top, body), class_="wide")


def _child(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(plain(child, LONGEST))
    return together(child)


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return html.escape(plain(value, LONGEST))
    return f"{value:.2f}".rstrip("0").rstrip(".")

"""Renders the templates of the files for people: no text from outside can become markup there."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from engine.markdown import line, table
from engine.records import measured
from harness.formats import quantities

if TYPE_CHECKING:  # only a page loads it
    from jinja2 import Environment

FOLDER = Path(__file__).parent


@functools.cache
def environment(print_text: Callable[[str], str]) -> Environment:
    """Return a jinja environment that prints texts by a function, and floats with two decimals.

    What the function returns is escaped for HTML, unless it is Markup.
    """
    from jinja2 import DictLoader, Environment, StrictUndefined

    def printed(value: object) -> object:
        if isinstance(value, float):
            return f"{value:.2f}".rstrip("0").rstrip(".")
        return print_text(value) if isinstance(value, str) and not isinstance(value, Markup) \
            else value

    made = Environment(
        loader=DictLoader(_sources()), autoescape=True, finalize=printed,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True)
    made.globals.update(measured=measured, quantities=quantities, table=table)
    return made


@functools.cache
def _sources() -> dict[str, str]:
    """Return all templates, read once: an upgrade of kopt must not change them for this process."""
    return {path.name: path.read_text(encoding="utf-8")
            for path in (*FOLDER.glob("*.jinja"), *FOLDER.glob("report/*.jinja"))}


def render_page(name: str, **values: Any) -> str:
    """Return a page of Markdown; each text in it becomes one line without tags and links."""
    return render_markdown(name, _line, values)


def render_markdown(name: str, print_text: Callable[[str], Markup], values: dict[str, Any]) -> str:
    """Return a page with one empty line at most between its parts."""
    text = environment(print_text).get_template(f"{name}.md.jinja").render(values)
    return re.sub(r"\n{3,}", "\n\n", text.strip()) + "\n"


def _line(text: str) -> Markup:
    return Markup(line(text))

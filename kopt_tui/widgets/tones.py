"""Tones: what a text means, turned into the colours of the current theme.

A tone supports a word or a sign and never replaces it.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

Span = tuple[str, str]
"""A text and its tones, separated by spaces."""

Line = tuple[Span, ...]

KOPT_THEME = Theme(
    name="kopt", ansi=True, primary="ansi_cyan", secondary="ansi_blue", warning="ansi_yellow",
    error="ansi_red", success="ansi_green", accent="ansi_magenta", foreground="ansi_default",
    background="ansi_default", surface="ansi_default", panel="ansi_default", boost="ansi_default",
    variables={
        "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_cyan",
        "input-cursor-background": "ansi_cyan", "input-cursor-foreground": "ansi_black",
        "input-selection-background": "ansi_blue", "border-blurred": "ansi_bright_black",
        "ansi-background": "ansi_black", "ansi-foreground": "ansi_white",
    },
)
"""The terminal's own sixteen colours: readable on dark and light, and short escape sequences."""

BUILTIN_THEMES[KOPT_THEME.name] = KOPT_THEME

COLOURS = {"good": "success", "bad": "error", "warn": "warning", "info": "primary",
           "accent": "accent"}
ATTRIBUTES = {"dim": Style(dim=True), "bold": Style(bold=True), "reverse": Style(reverse=True),
              "under": Style(underline=True), "plain": Style()}


def rich_style(app: App[object], tones: str) -> Style:
    """Return the Rich style of tones such as "good bold" in the app's current theme."""
    return _style(app.theme, tones, tuple(app.theme_variables.get(name, "ansi_default")
                                          for name in COLOURS.values()))


@lru_cache(maxsize=512)
def _style(theme: str, tones: str, colours: tuple[str, ...]) -> Style:
    style = Style()
    by_tone = dict(zip(COLOURS, colours, strict=True))
    for tone in tones.split():
        if tone in by_tone:
            style += Style(color=Color.parse(by_tone[tone]).rich_color)
        else:
            style += ATTRIBUTES[tone]
    return style

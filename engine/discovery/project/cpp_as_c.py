"""Rewrites CUDA C++ so that the grammar of C parses its functions; what it computes may differ."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TYPE = r"(?:(?:un)?signed|float|double|int|long|short|char|bool|half|__half|size_t)"
BOUNDS = r"\b__launch_bounds__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_RULES = tuple((re.compile(pattern), text) for pattern, text in (
    (r'extern\s*"C"', ""), (BOUNDS, ""),
    (r"\b\w+\s*::\s*", ""),
    (r"\btemplate\s*<(?:[^<>{};]|<[^<>{};]*>)*>", ""),
    (r"\b(?:reinterpret|static|const)_cast\s*<([^<>;{}]*)>\s*(?=\()", r"(\1)"),
    (r"\b(?!include\b)([A-Za-z_]\w*)\s*<[^<>;(){}&|]*>(?=\s*\(|\s+[\w*&]|\s*\*)", r"\1"),
    (rf"\b({_TYPE})\s*(?=\()(?!\(\s*\*)", r"(\1)"),
    (r"\b[A-Z][A-Z0-9_]+\s*\(((?:[^();,]|\([^();]*\))*)\)(?=\s*=[^=])", r"\1"),
    (r"\bconstexpr\b", "const"), (r"\bnullptr\b", "0"), (r"\bauto\b", "auto_")))


def rewrite(source: str) -> str:
    """Return a source without templates, namespaces and casts that only C++ has."""
    text = _COMMENT.sub(" ", source)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text

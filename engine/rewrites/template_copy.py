"""Copies a template's text into a candidate: with fused lines and names that are not taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.rewrites.fused_lines import FusedCode

_MARK = re.compile(r"^(?P<indent>[ \t]*)# kopt: (?P<kind>prologue|epilogue|operands)\b.*\n",
                   re.MULTILINE)


class CopiedSource(Protocol):
    """A source with a host function `name`."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class TemplateCopy:
    """A copy of a template; `entry` is the name of the host function in `text`."""

    entry: str
    text: str


def copy(template: CopiedSource, code: FusedCode, used: Sequence[str]) -> TemplateCopy:
    """Return a copy with fused lines; no name that it defines is among the `used` ones."""
    text = _MARK.sub(lambda match: _filled(match, code), _body(template.text))
    names = _top_level(text)
    number = ""
    while any(_renamed(name, template.name, number) in used for name in names):
        number = str(int(number or 1) + 1)
    for name in sorted(names, key=len, reverse=True) if number else ():
        text = re.sub(rf"(?<![\w.]){name}\b(?!=[^=])", _renamed(name, template.name, number), text)
    return TemplateCopy(entry=f"{template.name}{number}", text=text)


def names_of(text: str) -> set[str]:
    """Return every name that a source defines or uses, except names of attributes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _filled(match: re.Match[str], code: FusedCode) -> str:
    lines = {"prologue": code.prologue, "epilogue": code.epilogue,
             "operands": [", ".join(code.operands) + ","] if code.operands else []}
    return "".join(f"{match['indent']}{line}\n" for line in lines[match["kind"]])


def _body(text: str) -> str:
    """Return a template without its docstring and imports, which a candidate has once."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_doc or (isinstance(node, ast.Import) and node.names[0].name.partition(".")[0]
                      in ("torch", "triton")):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "".join(lines).strip("\n") + "\n"


def _top_level(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _renamed(name: str, prefix: str, number: str) -> str:
    for start in (prefix, prefix.upper()):
        if number and name.startswith(start):
            return f"{start}{number}{name[len(start):]}"
    return f"{name}{number}"

"""One C source: its tokens, what it defines and includes; which headers belong to the system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property

from harness.audit.c.tokens import Token, tokens
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import MAX_SOURCE_BYTES
from harness.audit.findings.watched_names import NAMES, AuditRule
from harness.formats.text import words

ASSEMBLY = words("asm __asm__ __asm")
INCLUDES = words("include include_next import embed")
MAX_SPELLED = 1 << 14
_CONTROL = words("if for while switch return sizeof else do case")


_INTRINSICS = re.compile(r"(?:[a-z]?mm|avx\w*|amx\w*|fma|f16c|bmi2?|popcnt|sse\w*|gfni|vaes|sha"
                         r"|adx|lzcnt|xsave\w*|prfchw|clflushopt|wmmintrin|movdir)intrin\.h")
_SONAME = re.compile(r"^(?:lib)?(?P<name>[A-Za-z0-9_+-]+?)(?:\.so(?:\.[0-9]+)*|\.a)?$")


class CSource:
    """One C source: its tokens, what it defines, what it includes."""

    def __init__(self, data: bytes, file: str, first_line: int = 1) -> None:
        text = data[:MAX_SOURCE_BYTES].decode("utf-8", "replace")
        self.file, self.first_line = file, first_line
        self.lines = text.splitlines()
        self.tokens = tokens(text)

    def text(self, line: int) -> str:
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    @cached_property
    def matching(self) -> dict[int, int]:
        """The index of the partner of each parenthesis, bracket and brace."""
        pairs, stack = {}, []
        close = {")": "(", "]": "[", "}": "{"}
        for index, token in enumerate(self.tokens):
            if token.kind != "mark" or token.directive:
                continue
            if token.text in ("(", "[", "{"):
                stack.append(index)
            elif token.text in close and stack \
                    and self.tokens[stack[-1]].text == close[token.text]:
                opened = stack.pop()
                pairs[opened], pairs[index] = index, opened
        return pairs

    @cached_property
    def functions(self) -> dict[str, int]:
        """The functions that the source defines: the index of each one's name, by that name."""
        indices: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            if token.kind != "name" or token.directive or token.text in _CONTROL \
                    or not self.follows(index, "("):
                continue
            after = self.matching.get(index + 1, len(self.tokens)) + 1
            if after < len(self.tokens) and self.tokens[after].text == "{" and index \
                    and self.tokens[index - 1].text not in (".", "->", "=", "(", ","):
                indices.setdefault(token.text, index)
        return indices

    @cached_property
    def macros(self) -> dict[str, list[Token]]:
        """By macro, the tokens after its name in all of its definitions."""
        bodies: dict[str, list[Token]] = {}
        for index, token in enumerate(self.tokens[2:], 2):
            if token.directive and self.tokens[index - 1].text == "define" \
                    and self.tokens[index - 2].kind == "directive":
                bodies.setdefault(token.text, []).extend(
                    t for t in self.tokens[index + 1: index + 400]
                    if t.directive == token.directive)
        return bodies

    def spelled(self, tokens: Sequence[Token], depth: int = 0) -> str:
        """Return the text that an operand may spell: its strings and words, its macros' strings."""
        parts = []
        for token in tokens:
            if token.kind == "name" and token.text in self.macros and depth < 4:
                parts.append(self._spelled_macro(token.text, depth + 1))
            elif token.kind == "string" or (not depth and (
                    token.kind in ("name", "number") or token.text in (".", ":", "::"))):
                parts.append(token.text)
        return "".join(parts)[:MAX_SPELLED]

    @cache  # noqa: B019  a source lives as long as its audit
    def _spelled_macro(self, name: str, depth: int) -> str:
        return self.spelled(self.macros[name], depth)

    def name(self, index: int) -> str:
        """Return the name at an index, "" if there is none."""
        is_name = index < len(self.tokens) and self.tokens[index].kind == "name"
        return self.tokens[index].text if is_name else ""

    def follows(self, index: int, text: str) -> bool:
        return index + 1 < len(self.tokens) and self.tokens[index + 1].text == text \
            and self.tokens[index + 1].kind != "string"

    def before(self, index: int) -> str:
        return self.tokens[index - 1].text if index else ""

    def is_static(self, index: int) -> bool:
        """Return whether a function's declaration keeps it local, as `static` does."""
        while index > 0 and self.tokens[index - 1].text not in (";", "}", "{") \
                and not self.tokens[index - 1].directive:
            index -= 1
            if self.tokens[index].text in ("static", "inline", "__device__"):
                return True
        return False

    def includes(self) -> Iterator[tuple[str, str, Token]]:
        """Yield (form, name, its token): form `<` or `"`, `?` where a macro gives the name."""
        for index, token in enumerate(self.tokens):
            if token.kind != "directive" or index + 1 >= len(self.tokens) \
                    or self.tokens[index + 1].text not in INCLUDES:
                continue
            rest = [t for t in self.tokens[index + 2: index + 60]
                    if t.directive == token.directive]
            if rest and rest[0].kind == "string":
                yield '"', rest[0].text, token
            elif rest and rest[0].text == "<":
                words = "".join(t.text for t in rest[1:])
                yield "<", words.partition(">")[0], token
            else:
                yield "?", "".join(t.text for t in rest)[:80], token

    def line(self, token: Token) -> int:
        return token.line + self.first_line - 1

    def see(self, token: Token, rule: AuditRule, name: str = "") -> Sighting:
        return Sighting(rule=rule.rule, severity=rule.severity, file=self.file,
                        what=f"{rule.why}: {name}" if name else rule.why,
                        line=self.line(token), text=self.text(token.line))


def is_standard_header(name: str) -> bool:
    """Return whether a header belongs to the compiler, the system, CUDA, HIP or torch."""
    name = name.removeprefix("./")
    if ".." in name.split("/") or name.startswith("/"):
        return False
    return name in NAMES["headers"] or name.startswith(tuple(NAMES["header_folders"])) \
        or _INTRINSICS.fullmatch(name) is not None


def is_standard_library(name: str) -> bool:
    """Return whether a library, by its name or file name, belongs to the compiler or the device."""
    match = _SONAME.match(os.path.basename(name.removeprefix(":")))
    return match is not None and match["name"] in NAMES["libraries"] and name.count("/") == 0

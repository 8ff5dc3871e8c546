"""Recognises library constructors that only fill a table with computed numbers.

A constructor passes only if every token of its body is known and no macro, pointer, assembly or
preprocessor condition can change its meaning.
"""

from __future__ import annotations

import re
from functools import lru_cache

from harness.audit.c.source import ASSEMBLY, CSource, is_standard_header
from harness.audit.c.tokens import Token
from harness.audit.findings.watched_names import NAMES
from harness.formats.text import words

_CONTROL = words("for while do if else return break continue")
_TYPES = words("""
    const float double int char short long unsigned signed int8_t int16_t int32_t int64_t uint8_t
    uint16_t uint32_t uint64_t size_t""")
_MARKS = words("( ) { } [ ] ; , = + - * / % < > <= >= == != ! ~ ? : & | ^ << >> && ||")
_BEFORE_BODY = words("static void inline")
_CONDITIONS = words("if ifdef ifndef elif elifdef elifndef else")
_SPOILERS = words("""
    alias __alias__ ifunc __ifunc__ weakref __weakref__ symver __symver__ weak
    redefine_extname push_macro pop_macro operator using namespace template""")
"""Words that can make a name refer to another function."""

_MATHEMATICS = frozenset(name + end for name in NAMES["mathematics"] for end in ("", "f", "l"))
_INDEX = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)(?P<shift>[+-]\d+)?|(?P<at>\d+))")
_COUNTED = re.compile(
    r"(?P<name>\w+) = (?P<first>(?:- )?\d+) ; (?P=name) (?P<test><|<=) (?P<last>(?:- )?\d+) ; "
    r"(?:\+ \+ (?P=name)|(?P=name) \+ \+) \)")
_CHANGED = re.compile(r"(?:(?:[-+*/%&|^]|<<|>>) )?= |\+ \+|- -")
_STEPS = (["+", "+"], ["-", "-"])


def only_fills_table(source: CSource, index: int) -> bool:
    """Return whether the constructor with the attribute at `index` only fills a table."""
    begin = _body(source, index)
    if begin is None or begin not in source.matching or not _has_plain_meaning(source):
        return False
    return _Body(source, begin).is_mathematics()


def _body(source: CSource, index: int) -> int | None:
    """Return where the body opens, None unless only a plain declarator precedes it."""
    line = " ".join(t.text for t in source.tokens[index + 1: index + 20])
    declarator = re.match(r"(?:\( \d+ \) )?\) \) ((?:\w+ )+)\( (?:void )?\) \{", line)
    if declarator is None:
        return None
    tokens = source.tokens[index + 1: index + 2 + declarator[0].count(" ")]
    *before, last = declarator[1].split()
    if any(t.kind == "string" or t.directive for t in tokens) \
            or "void" not in (*before, last) or not set(before) <= _BEFORE_BODY \
            or any(t.text in source.macros for t in tokens):
        return None
    return index + len(tokens)


@lru_cache(maxsize=4)
def _has_plain_meaning(source: CSource) -> bool:
    """Return whether every word of the source has its plain meaning for the compiler."""
    names = {t.text for t in source.tokens if t.kind == "name"}
    directives = {source.tokens[at + 1].text for at, t in enumerate(source.tokens[:-1])
                  if t.kind == "directive"}
    has_extern_blocks = any(
        t.text == "extern" and source.tokens[at + 1].kind == "string"
        and source.follows(at + 1, "{") for at, t in enumerate(source.tokens[:-1]))
    has_assembly = any(t.text in ASSEMBLY and not _is_barrier(source, at)
                       for at, t in enumerate(source.tokens) if t.kind == "name")
    return not has_extern_blocks and not has_assembly \
        and not names & _SPOILERS and not directives & _CONDITIONS \
        and not source.macros.keys() & (_TYPES | _CONTROL | _BEFORE_BODY) \
        and not any("??" in line for line in source.lines) \
        and all(form == "<" and is_standard_header(name) for form, name, _ in source.includes())


def _is_barrier(source: CSource, at: int) -> bool:
    """Return whether assembly is only a compiler barrier, as `asm("" ::: "memory")`."""
    rest = [t for t in source.tokens[at + 1: at + 5]
            if t.text not in ("volatile", "__volatile__")]
    return len(rest) > 2 and rest[0].text == "(" and rest[1].kind == "string" \
        and not rest[1].text and rest[2].text in (":", "::", ")")


@lru_cache(maxsize=4)
def _file_scope_tokens(source: CSource) -> set[int]:
    """Return the indices of the tokens at file scope: they declare, and call nothing."""
    outside, depth = set(), 0
    for at, token in enumerate(source.tokens):
        depth += (token.text == "{") - (token.text == "}") if token.kind == "mark" else 0
        if depth == 0:
            outside.add(at)
    return outside


@lru_cache(maxsize=4)
def _arrays(source: CSource) -> dict[str, int]:
    """Return the sizes of the arrays declared as `static float table[256];` at file scope."""
    sizes, outside, start = {}, _file_scope_tokens(source), 0
    for at, token in enumerate(source.tokens):
        if token.directive or (token.kind == "mark" and token.text in (";", "}")):
            line = [t.text for t in source.tokens[start:at]]
            if token.text == ";" and at in outside and len(line) >= 6 and line[0] == "static" \
                    and set(line[1:-4]) <= _TYPES - {"const"} and line[-3] == "[" \
                    and line[-2].isdigit() and line[-2][0] != "0" and line[-1] == "]":
                sizes[line[-4]] = int(line[-2])
            start = at + 1
    return sizes


@lru_cache(maxsize=256)
def _is_undefined_function(source: CSource, name: str) -> bool:
    """Return whether the source only calls a function: no definition, declaration or mention."""
    if name in source.functions:
        return False
    for at, token in enumerate(source.tokens):
        if token.kind == "string" and name in token.text:
            return False
        if token.text == name and (
                token.directive or at in _file_scope_tokens(source) or not source.follows(at, "(")
                or (source.tokens[at - 1].kind == "name" and source.before(at) not in _CONTROL)):
            return False
    return True


class _Body:
    """A function's body: its tokens, its variables, and the arrays that it may fill."""

    def __init__(self, source: CSource, begin: int) -> None:
        self.source, self.end = source, source.matching[begin]
        self.tokens = source.tokens[begin: self.end + 1]
        self.text = [t.text for t in self.tokens]
        self.arrays = _arrays(source)
        self.locals = {t.text for at, t in enumerate(self.tokens)
                       if t.kind == "name" and t.text not in _TYPES and self.text[at - 1] in _TYPES}
        self.begin = begin
        self.counters = self._counters()

    def is_mathematics(self) -> bool:
        return len(self.tokens) > 2 and not self.locals & (set(self.arrays) | _CONTROL) \
            and not any(t.directive or t.text in self.source.macros for t in self.tokens) \
            and all(self._known(at, token) for at, token in enumerate(self.tokens))

    def _known(self, at: int, token: Token) -> bool:
        after = self.text[at + 1] if at + 1 < len(self.text) else ""
        if token.kind == "number":
            return after not in ("[", "(")
        if token.kind == "name" and token.text in self.arrays:
            return after == "[" and self._inside(at)
        if token.kind == "name" and token.text in self.locals:
            return after not in ("[", "(")
        if token.kind == "name":
            return token.text in _CONTROL or token.text in _TYPES or (
                after == "(" and token.text in _MATHEMATICS
                and _is_undefined_function(self.source, token.text))
        return token.kind == "mark" and token.text in _MARKS and self._is_plain_mark(at, after)

    def _is_plain_mark(self, at: int, after: str) -> bool:
        """Return whether a mark is neither a pointer, a call by an expression nor a digraph."""
        mark, before = self.text[at], self.text[at - 1] if at else ""
        if mark in ("*", "&"):  # of a product or a mask, not of a pointer
            is_after_operand = before in self.locals or before == "]" \
                or self.tokens[at - 1].kind == "number"
            return is_after_operand or (before == ")" and not self._closes_cast(at - 1))
        if mark == "[":
            return before in self.arrays
        if mark == "(":
            return before not in ("]", "}") and (before != ")" or self._closes_cast(at - 1))
        return (mark, after) not in (("<", ":"), ("<", "%"), (":", ">"), ("%", ">"))

    def _closes_cast(self, at: int) -> bool:
        opened = self.source.matching.get(self.begin + at, self.begin + at) - self.begin
        return 0 <= opened < at - 1 and all(self.text[i] in _TYPES for i in range(opened + 1, at))

    def _inside(self, at: int) -> bool:
        """Return whether an array's index, a number or a shifted loop counter, is within bounds."""
        close = self.source.matching.get(self.begin + at + 1, 0) - self.begin
        index = _INDEX.fullmatch("".join(self.text[at + 2: close])) if at < close < at + 8 else None
        if index is None or self.text[close + 1] == "[":
            return False
        shift, size = int(index["shift"] or 0), self.arrays[self.text[at]]
        spans = [range(int(index["at"]), int(index["at"]) + 1)] if index["at"] \
            else self.counters.get(index["name"], [])
        return bool(spans) and all(span.start + shift >= 0 and span.stop + shift <= size
                                   for span in spans)

    def _counters(self) -> dict[str, list[range]]:
        """Return the ranges of loop counters, without variables that are also set elsewhere."""
        counters: dict[str, list[range]] = {}
        headers: set[int] = set()
        for at, name in enumerate(self.text):
            loop = _COUNTED.match(" ".join(self.text[at: at + 16]))
            if loop is None or self.text[at - 3: at - 1] != ["for", "("]:
                continue
            last = int(loop["last"].replace(" ", "")) + (loop["test"] == "<=")
            counters.setdefault(name, []).append(range(int(loop["first"].replace(" ", "")), last))
            headers |= set(range(at, at + loop[0].count(" ") + 1))
        for at, name in enumerate(self.text):
            if at not in headers and (
                    self.text[at - 1] in _TYPES or self.text[at - 2: at] in _STEPS
                    or _CHANGED.match(" ".join(self.text[at + 1: at + 4]))):
                counters.pop(name, None)
        return counters

"""Finds in C and CUDA sources, from tokens alone, what no honest kernel needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from harness.audit.c import static_initializers
from harness.audit.c.source import ASSEMBLY, INCLUDES, CSource
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import (
    C_CALLS,
    C_NAMES,
    NAMES,
    AuditRule,
    c_rule,
    fetches,
    reads_clock,
    watched_text,
)
from harness.formats.text import words

_SYSCALL = re.compile(r"\bsyscall\b|\bsysenter\b|\bint\s*\$?0x80\b|\bsvc\b")
_BYTES = re.compile(r"\.(?:byte|word|long|quad|octa|short|hword|[248]byte|inst|insn"
                    r"|incbin|ascii|asciz)\b")
_LABEL = re.compile(r"\s*\w+(?:@+[\w.]+)?\s*")
_REFERS = re.compile(r"\.(?:symver|set|equ|weakref|reloc|quad|long)\b|\w\s*=\s*[A-Za-z_]"
                     r"|\b(?:call[lq]?|jmp|blr?)\b")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\.)")
"""A name in assembly; followed by a dot it is an instruction, such as nanosleep.u32."""

_ALIASING_ATTRIBUTES = words("alias __alias__ weakref __weakref__ symver __symver__")
_AT_START = re.compile(r"\.(?:(?:pre)?init_array|fini_array|ctors|dtors)\b|\.(?:init|fini)\"")
_AT_START_NAMES = words("init_array preinit_array fini_array ctors dtors")
_KEYWORDS = words("return else case goto do sizeof typeof define")
_CODE_LIKE = re.compile(r"__global__|#\s*include|\basm\b|;\s*\}", re.ASCII)
_LOADED = AuditRule("hidden-code", "flag", "runs code when it is loaded")
_SYSTEM_CALL = AuditRule("hidden-code", "reject", "makes a system call in assembly")
_PASTES = AuditRule("hidden-code", "flag", "builds a name by token pasting")


def scan(source: CSource, *, delegation: bool = True, depth: int = 0) -> list[Sighting]:
    """Return all sightings; with `delegation`, also calls of a library's computation."""
    sightings = [s for s in _names(source) if delegation or s.rule != "delegation"]
    sightings += [*_strings(source), *_assembly(source), *_renamed_functions(source),
                  *_pasting(source), *_library_replacements(source)]
    sightings += [source.see(token, AuditRule("hidden-code", "flag", "includes a computed name"))
                  for form, _, token in source.includes() if form == "?"]
    for token in source.tokens:
        if token.kind == "string" and depth < 2 and _CODE_LIKE.search(token.text):
            inner = CSource(token.text.encode(errors="replace"), source.file, source.line(token))
            sightings += scan(inner, delegation=delegation, depth=depth + 1)
    return sightings


def _names(source: CSource) -> Iterator[Sighting]:
    has_join = any(t.text in NAMES["joins"] for t in source.tokens if t.kind == "name")
    has_anonymous_map = any(t.text in ("MAP_ANONYMOUS", "MAP_ANON") for t in source.tokens)
    for index, token in enumerate(source.tokens):
        if token.kind != "name":
            continue
        is_member = source.before(index) in (".", "->")
        called = source.follows(index, "(") and not is_member
        rule = c_rule(token.text, called=called or _is_taken(source, index))
        if rule is not None and token.text in source.functions:
            rule = None  # the source's own function: see `_library_replacements`
        if rule is None and token.text == "mmap" and not has_anonymous_map:
            rule = AuditRule("files", "flag", "maps a file into memory")
        if token.text in _AT_START_NAMES and not source.follows(index, "("):
            rule = _LOADED
        if token.text.strip("_") in ("constructor", "destructor", "ifunc") \
                and _in_attribute(source, index) \
                and not static_initializers.only_fills_table(source, index):
            rule = _LOADED
        if rule is not None and not (is_member and token.text in C_CALLS):
            seen = source.see(token, rule, token.text)
            if rule.why.startswith("works on a side stream") and has_join:
                seen = source.see(token, AuditRule(rule.rule, "note", rule.why), token.text)
            yield seen


def _is_taken(source: CSource, index: int) -> bool:
    """Return whether a function is used without a call: `&fork`, `f(fork)`, `#define f fork`."""
    token = source.tokens[index]
    if token.directive:
        return source.tokens[index - 2].text == "define"
    return token.text in C_CALLS and token.text not in _variables(source) \
        and source.before(index) not in (".", "->")


@lru_cache(maxsize=4)
def _variables(source: CSource) -> set[str]:
    """Return the names that the source declares as variables, parameters or members."""
    names: set[str] = set()
    for index, token in enumerate(source.tokens[1:], 1):
        before = source.tokens[index - 1]
        if before.text in ("*", "&") and index > 1:
            before = source.tokens[index - 2]
        if token.kind == "name" and source.follows(index, "="):
            names.add(token.text)
        elif token.kind == "name" and before.kind == "name" and before.text not in _KEYWORDS \
                and not source.follows(index, "("):
            names.add(token.text)
            while source.follows(index, ",") and (word := source.name(index + 2)):
                index += 2  # as in `int open, time;`
                names.add(word)
    return names


def _in_attribute(source: CSource, index: int) -> bool:
    """Return whether a word is part of an attribute, also through a macro."""
    if source.tokens[index].directive:
        return True
    before = [t.text for t in source.tokens[max(0, index - 60): index]]
    for at, text in enumerate(before):
        if text in ("__attribute__", "__attribute") and \
                before[at:].count("(") > before[at:].count(")"):
            return True
        if before[at: at + 2] == ["[", "["] and before[at:].count("[") > before[at:].count("]"):
            return True
    return before[-1:] == ["("] and source.follows(index, ")")


def _strings(source: CSource) -> Iterator[Sighting]:
    for index, token in enumerate(source.tokens):
        if token.kind != "string":
            continue
        included = token.directive and source.before(index) in INCLUDES
        for rule, name in watched_text("" if included else token.text):
            yield source.see(token, rule, name)
        if _AT_START.search(token.text):
            yield source.see(token, _LOADED)
        if fetches(token.text):
            yield source.see(token, AuditRule("network", "reject", "fetches a package or a file"))


def _assembly(source: CSource) -> Iterator[Sighting]:
    assembly = ASSEMBLY | {name for name, body in source.macros.items()
                           if any(t.text in ASSEMBLY for t in body)}
    for index, token in enumerate(source.tokens):
        if token.kind != "name" or token.text not in assembly:
            continue
        start = index + 1
        while start < len(source.tokens) and source.tokens[start].text in (
                "volatile", "__volatile__", "goto", "inline", "__volatile"):
            start += 1
        end = source.matching.get(start, min(len(source.tokens), start + 40))
        first = index if token.text in source.macros else start
        code = source.spelled([t for t in source.tokens[first:end]
                               if t.directive == token.directive])
        called = _LABEL.fullmatch(code) or _REFERS.search(code)
        for word in _WORD.findall(code):
            if (rule := c_rule(word, called=bool(called))) is not None:
                yield source.see(token, rule, word)
        if _SYSCALL.search(code):
            yield source.see(token, _SYSTEM_CALL)
        if reads_clock(code):
            yield source.see(token, AuditRule("timing", "flag", "reads a clock in assembly"))
        if _BYTES.search(code):
            yield source.see(token, AuditRule("hidden-code", "flag", "raw bytes in assembly"))


def _renamed_functions(source: CSource) -> Iterator[Sighting]:
    """Find watched functions that a pragma or an attribute renames."""
    for index, token in enumerate(source.tokens):
        if token.kind != "name":
            continue
        words: list[str] = []
        if token.text == "pragma" and source.before(index) == "#":
            words = [t.text for t in source.tokens[index + 1: index + 6]
                     if t.directive == token.directive]
        elif token.text == "_Pragma" or (token.text in _ALIASING_ATTRIBUTES
                                         and _in_attribute(source, index)):
            end = source.matching.get(index + 1, index + 1)
            words = _WORD.findall(source.spelled(source.tokens[index + 1:end]))
            words = words if token.text == "_Pragma" else ["weak", *words]
        for word in words[1:] if words[:1] in (["redefine_extname"], ["weak"]) else ():
            if (rule := c_rule(word, called=True)) is not None:
                yield source.see(token, rule, word)


def _pasting(source: CSource) -> Iterator[Sighting]:
    """Find watched names that pasted tokens can spell from words of the source."""
    pastes = [at for at, t in enumerate(source.tokens)
              if t.text == "##" and t.directive and t.kind == "mark"]
    if not pastes:
        return
    words = {t.text for t in source.tokens if t.kind == "name"}
    left, right = ({source.name(at + step) for at in pastes} for step in (-1, 1))
    arguments, neighbours = _arguments(source)
    joined: dict[int, str] = {}
    for at in pastes:  # words of the macro itself, as fo##rk
        first = joined.get(at - 2, source.name(at - 1))
        neighbours.add((first, source.name(at + 1)))
        joined[at] = first + source.name(at + 1)
    for name in (*C_NAMES, *ASSEMBLY, "__attribute__"):
        cuts = [(name[:cut], name[cut:]) for cut in range(1, len(name))]
        if any((a, b) in neighbours or (a in arguments and b in right) or (
                a in left and b in arguments) for a, b in cuts) or (
                len(name) > 4 and name not in words and any(
                    len(a) > 1 and len(b) > 1 and {a, b} <= words for a, b in cuts)):
            yield source.see(source.tokens[pastes[0]], _PASTES, name)


def _arguments(source: CSource) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the one-word arguments, and pairs: (adjacent ones joined, the one that follows)."""
    arguments: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for index, token in enumerate(source.tokens):
        if token.kind == "name" and source.before(index) in ("(", ",") \
                and (source.follows(index, ",") or source.follows(index, ")")):
            joined = token.text
            arguments.add(joined)
            for at in range(index, index + 12, 2):
                if not source.follows(at, ",") or not (word := source.name(at + 2)):
                    break
                pairs.add((joined, word))
                joined += word
    return arguments, pairs


def _library_replacements(source: CSource) -> Iterator[Sighting]:
    for name, index in source.functions.items():
        if name in NAMES["stolen_functions"] and not source.is_static(index):
            yield source.see(source.tokens[index], AuditRule(
                "patched", "reject" if name in NAMES["stolen_timers"] else "flag",
                "replaces a library's function"), name)

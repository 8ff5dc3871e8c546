"""Finds in C and CUDA sources, from tokens alone, what no honest kernel needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.audit.c import static_initializers, watched_c_names
from harness.audit.c.source import CSource
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_name import AuditRule
from harness.formats.text import words

_SYSCALL = re.compile(r"\bsyscall\b|\bsysenter\b|\bint\s*\$?0x80\b|\bsvc\b")
_CLOCK = re.compile(r"\brdtscp?\b|%(?:globaltimer|clock)|\bcntvct_el0\b|s_mem(?:real)?time")
_BYTES = re.compile(r"\.(?:byte|word|long|quad|inst|incbin)\b")
_AT_START = re.compile(r"\.(?:(?:pre)?init_array|fini_array|ctors|dtors)\b|\.(?:init|fini)\"")
_FETCH = re.compile(r"\bpip3?\s+install\b|\bcurl\b|\bwget\b|\bgit\s+clone\b")
_MEMORY = re.compile(r"/proc/[^/\s]*/mem\b|/dev/k?mem\b")
_SYSTEM = re.compile(r"/proc/[^\s]*|/dev/shm\b|/tmp/|/etc/|/home/|/sys/")
_JOINS = words("""
    cudaStreamWaitEvent cudaStreamSynchronize cudaDeviceSynchronize hipStreamWaitEvent
    hipStreamSynchronize hipDeviceSynchronize""")
_CODE_LIKE = re.compile(r"__global__|#\s*include|\basm\b|;\s*\}", re.ASCII)


def scan(source: CSource, *, delegation: bool = True, depth: int = 0) -> list[Sighting]:
    """Return all sightings; `delegation` requires that the source itself does the work."""
    sightings = [s for s in _names(source) if delegation or s.rule != "delegation"]
    sightings += [*_strings(source), *_assembly(source), *_pasting(source), *_stolen(source)]
    for form, name, line in source.includes():
        if form == "?":
            sightings.append(Sighting(rule="hidden-code", severity="flag", text=name, line=line,
                                      file=source.file, what="includes a computed name"))
    for token in source.tokens:
        if token.kind == "string" and depth < 2 and _CODE_LIKE.search(token.text):
            inner = CSource(token.text.encode(errors="replace"), source.file, source.line(token))
            sightings += scan(inner, delegation=delegation, depth=depth + 1)
    return sightings


def _names(source: CSource) -> Iterator[Sighting]:
    joins = any(t.text in _JOINS for t in source.tokens if t.kind == "name")
    anonymous = any(t.text in ("MAP_ANONYMOUS", "MAP_ANON") for t in source.tokens)
    for index, token in enumerate(source.tokens):
        if token.kind != "name":
            continue
        member = source.before(index) in (".", "->")
        called = source.follows(index, "(") and not member
        rule = watched_c_names.lookup(token.text, called=called or _is_taken(source, index))
        if rule is not None and token.text in source.functions:
            rule = None  # its own function; `_stolen` checks whether it replaces another
        if rule is None and token.text == "mmap" and not anonymous:
            rule = AuditRule("files", "flag", "maps a file into memory")
        if token.text.strip("_") in ("constructor", "destructor", "ifunc") \
                and _in_attribute(source, index) \
                and not static_initializers.only_fills(source, index):
            rule = AuditRule("hidden-code", "flag", "runs code when it is loaded")
        if rule is not None and not (member and token.text in watched_c_names.CALLS):
            seen = source.see(token, rule, token.text)
            if rule.why.startswith("works on a side stream") and joins:
                seen = source.see(token, AuditRule(rule.rule, "note", rule.why), token.text)
            yield seen


def _is_taken(source: CSource, index: int) -> bool:
    """Return whether a function's address is taken: `= fork;`, `&fork`, or a whole macro body."""
    token = source.tokens[index]
    if token.directive:
        return source.tokens[index - 2].text == "define"
    after = source.tokens[index + 1].text if index + 1 < len(source.tokens) else ";"
    return source.before(index) == "=" and after in (";", ",") and token.text in (
        "fork", "system", "popen", "socket", "open", "write", "clock")


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
    for token in source.tokens:
        if token.kind != "string":
            continue
        if _MEMORY.search(token.text):
            yield source.see(token, AuditRule("files", "reject", "names a process's memory"))
        elif found := _SYSTEM.search(token.text):
            yield source.see(
                token, AuditRule("files", "flag", "names a system file"), found[0][:40]
            )
        if _AT_START.search(token.text):
            yield source.see(token, AuditRule("hidden-code", "flag", "runs code when it is loaded"))
        if _FETCH.search(token.text):
            yield source.see(token, AuditRule("network", "reject", "fetches a package or a file"))


def _assembly(source: CSource) -> Iterator[Sighting]:
    for index, token in enumerate(source.tokens):
        if token.kind != "name" or token.text not in ("asm", "__asm__", "__asm"):
            continue
        start = index + 1
        while start < len(source.tokens) and source.tokens[start].text in (
                "volatile", "__volatile__", "goto", "inline", "__volatile"):
            start += 1
        end = source.matching.get(start, min(len(source.tokens), start + 40))
        code = " ".join(t.text for t in source.tokens[start:end])
        if _SYSCALL.search(code):
            yield source.see(
                token, AuditRule("hidden-code", "reject", "calls the system in assembly")
            )
        if _CLOCK.search(code):
            yield source.see(token, AuditRule("timing", "flag", "reads a clock in assembly"))
        if _BYTES.search(code):
            yield source.see(token, AuditRule("hidden-code", "flag", "raw bytes in assembly"))


def _pasting(source: CSource) -> Iterator[Sighting]:
    """Return whether pasted tokens can spell a watched name from two words of the source."""
    pastes = [t for t in source.tokens if t.text == "##" and t.directive and t.kind == "mark"]
    if not pastes:
        return
    words = {t.text for t in source.tokens if t.kind == "name"}
    for name in (*watched_c_names.MENTIONS, *watched_c_names.CALLS):
        if len(name) < 5 or name in words:
            continue
        cuts = [cut for cut in range(2, len(name) - 1)
                if name[:cut] in words and name[cut:] in words]
        if cuts:
            yield source.see(
                pastes[0], AuditRule("hidden-code", "flag", "pastes a name together"), name
            )


def _stolen(source: CSource) -> Iterator[Sighting]:
    for name, index in source.functions.items():
        if name in watched_c_names.STOLEN and not source.is_static(index):
            severity = "reject" if name in watched_c_names.TIMERS else "flag"
            yield source.see(source.tokens[index], AuditRule(
                "patched", "reject" if severity == "reject" else "flag",
                "puts itself in the place of a library's function"), name)

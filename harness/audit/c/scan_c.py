"""What a C or CUDA source says that no honest kernel needs, read from its tokens alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from harness.audit.c import static_initializers, watched_c_names
from harness.audit.c.tokens import Token, tokens
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import MAX_SOURCE_BYTES
from harness.audit.findings.watched_name import AuditRule, words

_CONTROL = words("if for while switch return sizeof else do case")
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
        """For each opening parenthesis, bracket or brace, where it closes, and back."""
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
        """The functions that the source defines, by the index of the name."""
        found: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            if token.kind != "name" or token.directive or token.text in _CONTROL \
                    or not self.follows(index, "("):
                continue
            after = self.matching.get(index + 1, len(self.tokens)) + 1
            if after < len(self.tokens) and self.tokens[after].text == "{" and index \
                    and self.tokens[index - 1].text not in (".", "->", "=", "(", ","):
                found.setdefault(token.text, index)
        return found

    def follows(self, index: int, text: str) -> bool:
        return index + 1 < len(self.tokens) and self.tokens[index + 1].text == text \
            and self.tokens[index + 1].kind != "string"

    def before(self, index: int) -> str:
        return self.tokens[index - 1].text if index else ""

    def is_static(self, index: int) -> bool:
        """Tell whether the declaration that ends at a function's name says `static`."""
        while index > 0 and self.tokens[index - 1].text not in (";", "}", "{") \
                and not self.tokens[index - 1].directive:
            index -= 1
            if self.tokens[index].text in ("static", "inline", "__device__"):
                return True
        return False

    def includes(self) -> Iterator[tuple[str, str, int]]:
        """Yield (form, name, line): form `<` or `"`, or `?` where a macro gives the name."""
        for index, token in enumerate(self.tokens):
            if token.kind != "directive" or index + 1 >= len(self.tokens) or self.tokens[
                    index + 1].text not in ("include", "include_next", "import", "embed"):
                continue
            rest = [t for t in self.tokens[index + 2: index + 60]
                    if t.directive == token.directive]
            if rest and rest[0].kind == "string":
                yield '"', rest[0].text, self.line(token)
            elif rest and rest[0].text == "<":
                words = "".join(t.text for t in rest[1:])
                yield "<", words.partition(">")[0], self.line(token)
            else:
                yield "?", "".join(t.text for t in rest)[:80], self.line(token)

    def line(self, token: Token) -> int:
        return token.line + self.first_line - 1

    def see(self, token: Token, rule: AuditRule, name: str = "") -> Sighting:
        return Sighting(rule=rule.rule, severity=rule.severity, file=self.file,
                        what=f"{rule.why}: {name}" if name else rule.why,
                        line=self.line(token), text=self.text(token.line))


def scan(source: CSource, *, delegation: bool = True, depth: int = 0) -> list[Sighting]:
    """Return all sightings; `delegation` says that the task wants the work done by the source."""
    found = [s for s in _names(source) if delegation or s.rule != "delegation"]
    found += [*_strings(source), *_assembly(source), *_pasting(source), *_stolen(source)]
    for form, name, line in source.includes():
        if form == "?":
            found.append(Sighting(rule="hidden-code", severity="flag", file=source.file, line=line,
                                  what="includes a computed name", text=name))
    for token in source.tokens:
        if token.kind == "string" and depth < 2 and _CODE_LIKE.search(token.text):
            inner = CSource(token.text.encode(errors="replace"), source.file, source.line(token))
            found += scan(inner, delegation=delegation, depth=depth + 1)
    return found


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
            rule = None  # its own function; whether that replaces another is told elsewhere
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
    """Tell whether a function's address is taken: `= fork;`, `&fork`, or a macro's whole body."""
    token = source.tokens[index]
    if token.directive:
        return source.tokens[index - 2].text == "define"
    after = source.tokens[index + 1].text if index + 1 < len(source.tokens) else ";"
    return source.before(index) == "=" and after in (";", ",") and token.text in (
        "fork", "system", "popen", "socket", "open", "write", "clock")


def _in_attribute(source: CSource, index: int) -> bool:
    """Tell whether a word is, or by a macro becomes, a part of an attribute."""
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
            yield source.see(token, AuditRule("files", "flag", "names a system file"), found[0][:40])
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
            yield source.see(token, AuditRule("hidden-code", "reject", "calls the system in assembly"))
        if _CLOCK.search(code):
            yield source.see(token, AuditRule("timing", "flag", "reads a clock in assembly"))
        if _BYTES.search(code):
            yield source.see(token, AuditRule("hidden-code", "flag", "raw bytes in assembly"))


def _pasting(source: CSource) -> Iterator[Sighting]:
    """Where tokens are pasted, tell whether two words of the source spell a watched name."""
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
            yield source.see(pastes[0], AuditRule("hidden-code", "flag", "pastes a name together"), name)


def _stolen(source: CSource) -> Iterator[Sighting]:
    for name, index in source.functions.items():
        if name in watched_c_names.STOLEN and not source.is_static(index):
            severity = "reject" if name in watched_c_names.TIMERS else "flag"
            yield source.see(source.tokens[index], AuditRule(
                "patched", "reject" if severity == "reject" else "flag",
                "puts itself in the place of a library's function"), name)

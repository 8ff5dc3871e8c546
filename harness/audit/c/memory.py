"""Finds what a C source keeps between calls, and which arguments are compared with that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.audit.c.source import CSource
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import NAMES, AuditRule
from harness.audit.python.cache_keys import CacheKey
from harness.audit.python.key_flow import Probe


class CMemory:
    """The variables of a source that outlive a call, and its pointer parameters."""

    def __init__(self, source: CSource, entry: str, args: Sequence[str | None]) -> None:
        self.source = source
        self.names = {source.tokens[at].text: at for at in _kept(source)}
        self.pointers: dict[str, str] = {}
        for name, index in source.functions.items():
            for place, (parameter, pointer) in enumerate(_parameters(source, index)):
                if pointer and parameter:
                    known = args[place] if name == entry and place < len(args) else None
                    if name == entry or parameter not in self.pointers:
                        self.pointers[parameter] = known or parameter
        self._follow_copies()
        self.mapped = entry in source.functions

    def keys(self) -> list[CacheKey]:
        """Return the comparisons and lookups that recognise an argument by address or contents."""
        by_label: dict[tuple[int, str], CacheKey] = {}
        for index, label, kind in self._evidence():
            token = self.source.tokens[index]
            by_label[token.line, label] = CacheKey(
                file=self.source.file, line=self.source.line(token),
                text=self.source.text(token.line),
                probes=frozenset({Probe(kind, frozenset({label}))}), mapped=self.mapped)
        return list(by_label.values())

    def notes(self) -> Iterator[Sighting]:
        for name, at in self.names.items():
            yield self.source.see(self.source.tokens[at], AuditRule(
                "memo", "note", "keeps memory between calls"), name)

    def _evidence(self) -> Iterator[tuple[int, str, str]]:
        tokens, kept, pointers = self.source.tokens, self.names.keys(), self.pointers.keys()
        for index, token in enumerate(tokens):
            if token.directive or not kept:
                continue
            if token.text in ("==", "!=") and token.kind == "mark":
                left, right = self._operand(index, -1), self._operand(index, 1)
                for (ours, inside), (theirs, _) in ((left, right), (right, left)):
                    for name in sorted(ours & pointers) if theirs & kept else ():
                        yield index, self.pointers[name], "contents" if inside else "data_ptr"
            elif token.kind == "name" and token.text in ("memcmp", "bcmp"):
                closed = self.source.matching.get(index + 1, index + 1)
                names = {t.text for t in tokens[index + 1:closed] if t.kind == "name"}
                for name in sorted(names & pointers) if names & kept else ():
                    yield index, self.pointers[name], "contents"
            elif token.kind == "name" and token.text in kept and self.source.follows(index, "["):
                for at in range(index + 2, self.source.matching.get(index + 1, index + 2)):
                    if tokens[at].text in pointers and not self._is_dereferenced(at):
                        yield index, self.pointers[tokens[at].text], "data_ptr"

    def _is_dereferenced(self, index: int) -> bool:
        """Return whether a pointer is dereferenced rather than used as a number."""
        before = self.source.tokens[index - 1].text if index else ""
        second = self.source.tokens[index - 2].text if index > 1 else ""
        return self.source.follows(index, "[") or self.source.follows(index, "->") \
            or (before == "*" and second not in NAMES["storage_types"])

    def _operand(self, index: int, step: int) -> tuple[set[str], bool]:
        """Return the names of the operand beside a comparison, and whether it is dereferenced."""
        tokens, names, inside = self.source.tokens, set(), False
        for _ in range(12):
            index += step
            if not 0 <= index < len(tokens) or tokens[index].directive:
                break
            token, other = tokens[index], self.source.matching.get(index, -step)
            if token.text in ("(", "[", ")", "]") and (other - index) * step > 0:
                names |= {t.text for t in tokens[min(index, other):max(index, other)]
                          if t.kind == "name"}
                inside, index = inside or token.text in ("[", "]"), other
            elif token.text == "*":
                inside |= step > 0 or self.source.before(index) in ("(", "&&", "||", "!")
            elif token.text in (".", "->"):
                inside |= token.text == "->"
            elif token.kind == "name" and token.text not in ("return", "case"):
                names.add(token.text)
            else:
                break
        return names, inside

    def _follow_copies(self) -> None:
        """Follow copies such as `uintptr_t key = (uintptr_t)x;`: key is then another name of x."""
        tokens = self.source.tokens
        for index, token in enumerate(tokens):
            if token.text != "=" or token.directive or tokens[index - 1].kind != "name":
                continue
            end = index + 1
            while end < len(tokens) and end < index + 12 and tokens[end].text not in (";", ","):
                end += 1
            last = tokens[end - 1].text
            rest = {t.text for t in tokens[index + 1: end - 1]}
            if last in self.pointers and rest <= NAMES["storage_types"] | {"(", ")", "*", "&"} \
                    and not self._is_dereferenced(end - 1) \
                    and tokens[index - 1].text not in self.names:
                self.pointers.setdefault(tokens[index - 1].text, self.pointers[last])


def _kept(source: CSource) -> Iterator[int]:
    """Yield the token index of each variable that outlives a call and can change."""
    depth, start = 0, 0
    opened: list[int] = []
    """By open brace, what it adds to the depth: 0 for a namespace and for `extern "C"`."""
    for index, token in enumerate(source.tokens):
        if token.directive:
            start = index + 1 if depth == 0 else start
            continue
        if token.text == "{" and token.kind == "mark":
            opened.append(0 if _is_scope_of_declarations(source, index) else 1)
            start = index + 1 if not opened[-1] and depth == 0 else start
            depth += opened[-1]
        elif token.text == "}" and token.kind == "mark":
            depth -= opened.pop() if opened else 0
            start = index + 1 if depth == 0 and not source.follows(index, ";") else start
        if token.kind == "name" and token.text in NAMES["storage"] and depth:
            yield from _declared(source, index, index + 80)
        elif token.text == ";" and depth == 0:
            yield from _declared(source, start, index + 1)
            start = index + 1


def _is_scope_of_declarations(source: CSource, brace: int) -> bool:
    """Return whether a brace opens a namespace or an `extern "C"` block."""
    before = source.tokens[max(0, brace - 2):brace]
    texts = [token.text for token in before]
    return "namespace" in texts or (
        len(before) == 2 and texts[0] == "extern" and before[1].kind == "string")


def _declared(source: CSource, start: int, end: int) -> Iterator[int]:
    """Yield the token index of each variable in a declaration, without constants."""
    named: list[int] = []
    for index in range(start, min(end, len(source.tokens))):
        token = source.tokens[index]
        if token.text in ("(", "typedef", "extern", "using", "template") and token.kind != "string":
            return
        if token.text in (";", "=", ",", "[", "{") and token.kind == "mark":
            if len(named) > 1 and not _constant(source, start, index):
                yield named[-1]
            if token.text == ",":
                continue
            return
        if token.kind == "name":
            named.append(index)


def _constant(source: CSource, start: int, end: int) -> bool:
    """Return whether a variable cannot change, as `const float table[]`, not `const float *p`."""
    texts = [t.text for t in source.tokens[start:end]]
    return ("const" in texts or "constexpr" in texts or "__constant__" in texts) \
        and "*" not in texts


def _parameters(source: CSource, index: int) -> Iterator[tuple[str, bool]]:
    """Yield the name of each parameter of a function, and whether it is a pointer."""
    closed = source.matching.get(index + 1, index + 1)
    name, is_pointer, skip = "", False, index + 1
    for at in range(index + 2, closed + 1):
        token = source.tokens[at]
        if at < skip:
            continue
        if token.text in ("(", "["):
            is_pointer = is_pointer or token.text == "["
            skip = source.matching.get(at, at) + 1
        elif token.text == "," or at == closed:
            yield name, is_pointer
            name, is_pointer = "", False
        elif token.text == "*":
            is_pointer = True
        elif token.kind == "name" and token.text not in NAMES["storage_types"]:
            name = token.text

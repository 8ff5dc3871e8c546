"""Finds in Python sources, from the syntax tree alone, what no honest kernel needs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cached_property

from harness.audit.findings.sighting import Sighting, unread
from harness.audit.findings.tree_diff import MAX_SOURCE_BYTES
from harness.audit.findings.watched_names import (
    ATTRIBUTES,
    NAMES,
    AuditRule,
    below,
    fetches,
    python_rule,
)
from harness.audit.python.constants import HOLE
from harness.audit.python.names import Module
from harness.audit.python.source_checks import Context, SourceChecks, Streams, is_own_name
from harness.audit.python.source_tree import UnreadableSource
from harness.verdict import Severity

_COMPUTED = AuditRule("hidden-code", "flag", "uses a computed name")
_METHOD = AuditRule("patched", "flag", "replaces a method")


def scan(data: bytes, file: str, context: Context) -> tuple[Module | None, list[Sighting]]:
    """Return the parsed module, None if it cannot be parsed, and all sightings."""
    if len(data) > MAX_SOURCE_BYTES:
        return None, [unread(file, "too large to audit")]
    try:
        module = Module(data, file, context.modules)
        return module, list(_Scan(module, context).all())
    except (UnreadableSource, RecursionError, MemoryError):
        return None, [unread(file, "cannot be read as Python")]


class _Scan(SourceChecks):
    def all(self) -> Iterator[Sighting]:
        self.streams = Streams(self.module)
        for node in self.module.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._import(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                yield from self._mention(node)
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Subscript):
                yield from self._subscript(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._class(node)
            elif isinstance(node, ast.MatchClass):
                yield from self._attributes(node, node.kwd_attrs)
        for node, text in self.module.texts():
            yield from self._text(node, text)

    def _watched(self, node: ast.expr) -> Iterator[Sighting]:
        """Check what an expression resolves to."""
        for name in sorted(self.module.dotted(node)):
            rule = python_rule(name)
            if rule is not None and ("." in name or isinstance(node, ast.Subscript)) \
                    and not self._is_own(name) and not self._is_exempt(node, name):
                yield self.see(node, rule, name, severity=self._severity(node, name))

    def _attributes(self, node: ast.AST, names: list[str]) -> Iterator[Sighting]:
        """Check attributes that are watched on any object."""
        yield from (self.see(node, rule, n) for n in names if (rule := ATTRIBUTES.get(n)))

    def _mention(self, node: ast.Name | ast.Attribute) -> Iterator[Sighting]:
        yield from self._dictionary(node)
        if isinstance(self.module.parents.get(node), ast.Attribute):
            return
        names = sorted(self.module.dotted(node))
        if not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute):
                for name in names:
                    yield from self._replaced(node, name)
                if not names and (node.attr in NAMES["methods"] or self._is_foreign(node.value)):
                    yield self.see(node, _METHOD, node.attr)
            return
        yield from self._watched(node)
        for name in names:
            module, _, last = name.rpartition(".")
            if self._is_reference(module) and last == self.context.function:
                yield self.see(node, AuditRule("delegation", "reject", "imports the reference"))
            if self._is_own(name):
                continue
            if below(name, NAMES["streams"]):
                yield self._stream(node, name)
            elif name in NAMES["modules"] and self._is_used_as_value(node):
                yield self.see(node, AuditRule("frame-walk", "flag", "passes a module on"), name)
            elif name in NAMES["getters"] and self._is_used_as_value(node):
                yield self.see(node, _COMPUTED, name)
        chain: ast.AST = node
        while isinstance(chain, ast.Attribute):
            if chain is not node or ATTRIBUTES.get(chain.attr) not in map(python_rule, names):
                yield from self._attributes(node, [chain.attr])
            chain = chain.value

    def _dictionary(self, node: ast.expr) -> Iterator[Sighting]:
        """Check what is done with a module's dictionary: only known names may be looked up."""
        owners = {name.split(".")[-2].removeprefix("_") for name in self.module.dotted(node)
                  if name.endswith(".__dict__")}
        if owners.isdisjoint(NAMES["modules"]):
            return
        user, key = self.module.parents.get(node), None
        if isinstance(user, ast.Subscript):
            key = user.slice
        elif isinstance(user, ast.Attribute) and user.attr in ("get", "__getitem__"):
            call = self.module.parents.get(user)
            key = call.args[0] if isinstance(call, ast.Call) and call.args else None
        elif isinstance(user, ast.Assign | ast.Compare):
            return
        if self.module.fold(key) is None:
            yield self.see(node, _COMPUTED)

    def _is_exempt(self, node: ast.AST, name: str) -> bool:
        parent = self.module.parents.get(node)
        if name == "sys.exit" or name.startswith("signal.SIG"):
            return node in self.module.in_main
        return name.startswith("sys.modules.") or (
            name in ("sys.modules", "os.environ")
            and isinstance(parent, ast.Subscript | ast.Compare))

    def _is_used_as_value(self, node: ast.AST) -> bool:
        """Return whether a name is used as a value: neither called nor merely renamed."""
        parent = self.module.parents.get(node)
        if isinstance(parent, ast.Call):
            getter = parent.func.func if isinstance(parent.func, ast.Call) else parent.func
            return parent.func is not node and \
                not self.module.dotted(getter) & NAMES["may_receive_modules"]
        return not (isinstance(parent, ast.NamedExpr | ast.Expr) or (
            isinstance(parent, ast.Assign) and all(isinstance(t, ast.Name) for t in parent.targets)
            and not isinstance(self.module.parents.get(parent), ast.ClassDef)))

    def _severity(self, node: ast.AST, name: str) -> Severity | None:
        """Return `reject` for running decoded code or making memory executable, else None."""
        call = self.module.parents.get(node)
        runs = name in ("builtins.exec", "builtins.eval", "builtins.compile") \
            and isinstance(call, ast.Call) and call.func is node
        decoded = runs and any(
            rule is not None and rule.why == "decodes hidden data"
            for inner in self.module.reach(call) if isinstance(inner, ast.Name | ast.Attribute)
            for rule in map(python_rule, self.module.dotted(inner)))
        return "reject" if decoded or name.startswith("mmap.PROT_EXEC") else None

    def _stream(self, node: ast.AST, name: str) -> Sighting:
        """Flag work on a side stream; only note it if the caller's stream waits for it."""
        rule = AuditRule("threads", "flag", "works on a side stream that must be joined")
        joined = self.streams.joined(node, made=name.endswith(".Stream"))
        return self.see(node, rule, name, severity="note" if joined else None)

    def _is_foreign(self, node: ast.AST) -> bool:
        """Return whether an expression is the class, or the dictionary, of an unknown object."""
        if isinstance(node, ast.Call) and len(node.args) == 1 \
                and self.module.dotted(node.func) & {"builtins.type", "builtins.vars"}:
            owner: ast.AST = node.args[0]
        elif isinstance(node, ast.Attribute) and node.attr in ("__class__", "__dict__"):
            owner = node.value
        else:
            return False
        return not (isinstance(owner, ast.Name)
                    and owner.id in ("self", "cls", *self.module.own)) \
            and not self.module.dotted(node)

    def _replaced(self, node: ast.AST, name: str) -> Iterator[Sighting]:
        if self._is_own(name) or name.partition(".")[0] in self.module.own:
            return
        if name.startswith("torch.backends."):
            rule = AuditRule("global-flags", "flag", "sets a flag of torch")
        elif below(name, NAMES["judges"]):
            rule = AuditRule("patched", "reject", "replaces code that judges candidates")
        else:
            rule = AuditRule("patched", "flag", "replaces a part of a library")
        yield self.see(node, rule, name)

    def _call(self, node: ast.Call) -> Iterator[Sighting]:
        yield from self._watched(node)
        yield from self._dictionary(node)
        for owner, attribute in self.module.gets(node):
            yield from self._computed(node, owner, attribute)
        if isinstance(node.func, ast.Attribute) and self._is_foreign(node.func.value):
            if node.func.attr in NAMES["writes"]:
                yield self.see(node, _METHOD)
            elif node.args and node.func.attr in ("get", "__getitem__"):
                yield from self._computed(node, node.func.value, node.args[0])
        names = sorted(self.module.dotted(node.func))
        for name in names if node.args else ():
            if name in NAMES["setters"] and len(node.args) > 1:
                yield from self._set(node)
            elif name in ("operator.attrgetter", "operator.methodcaller"):
                for attribute in node.args[:1 if name.endswith("caller") else None]:
                    yield from self._computed(node, None, attribute)
            elif name in NAMES["environment"]:
                yield from self._environment(node, node.args[0])
            elif name in ("sys.modules.get", "sys.modules.pop"):
                yield from self._loaded(node, node.args[0])
            elif name in ("builtins.__import__", "importlib.import_module"):
                yield from self._imported(node, self.module.fold(node.args[0]))
        for name in names:
            if ".__dict__." in name and name.rpartition(".")[2] in NAMES["writes"]:
                yield from self._replaced(node, f"{name.partition('.__dict__')[0]}.?")
            elif name.startswith("sys.modules.") and not name.endswith((".get", ".pop")):
                yield self.see(node, AuditRule("frame-walk", "flag", "walks the loaded modules"))
            elif below(name, NAMES["openers"]):
                yield from self._open(node, name)
            elif name == "torch.cuda.Event" and any(
                    k.arg == "enable_timing" or k.arg is None for k in node.keywords):
                yield self.see(node, AuditRule("timing", "flag", "times its own work"), name)
            if below(name, NAMES["starters"]) and fetches(" ".join(self.module.words(node))):
                yield self.see(node, AuditRule("network", "reject", "fetches a package or a file"))

    def _imported(self, node: ast.Call, name: str | None) -> Iterator[Sighting]:
        if name is None:
            yield self.see(node, AuditRule("hidden-code", "flag", "imports a computed name"))
            return
        yield from self._module(node, name)
        if (rule := python_rule(name)) and rule.rule == "network":
            yield self.see(node, rule, name)

    def _set(self, node: ast.Call) -> Iterator[Sighting]:
        owner, word = node.args[0], self.module.fold(node.args[1])
        names = [n for n in self.module.dotted(owner) if not n.startswith("builtins.")]
        for base in sorted(names):
            yield from self._replaced(node, f"{base}.{word or '?'}")
        if not names and (word in NAMES["methods"] or self._is_foreign(owner)):
            yield self.see(node, _METHOD, word or "")

    def _computed(self, node: ast.expr, owner: ast.AST | None,
                  name: ast.AST) -> Iterator[Sighting]:
        """Check an attribute named by a text, as in `getattr(owner, name)`, `attrgetter(name)`."""
        text = self.module.pattern(name)
        if HOLE not in text:
            yield from self._attributes(node, text.split("."))
            return
        names = sorted(() if owner is None else self.module.dotted(owner))
        called = isinstance(self.module.parents.get(node), ast.Call)
        standard = any(n.partition(".")[0] in sys.stdlib_module_names for n in names)
        if owner is None or standard or (names and called):
            yield self.see(node, _COMPUTED, names[0] if names else "")
        elif not names and (_may_spell(text) if text != HOLE else self._composes and not (
                isinstance(owner, ast.Name) and owner.id in ("self", "cls"))):
            yield self.see(node, _COMPUTED)

    @cached_property
    def _composes(self) -> bool:
        """Return whether any text that the source puts together may name a watched attribute."""
        patterns = {self.module.pattern(node) for node in self.module.nodes
                    if isinstance(node, ast.BinOp | ast.JoinedStr | ast.Call)}
        return any(_may_spell(text) for text in patterns
                   if HOLE in text and text.replace(HOLE, "").strip("_"))

    def _subscript(self, node: ast.Subscript) -> Iterator[Sighting]:
        loads = isinstance(node.ctx, ast.Load)
        word = self.module.fold(node.slice)
        for name in sorted(self.module.dotted(node.value)):
            if name == "sys.modules" and loads:
                yield from self._loaded(node, node.slice)
            elif name == "sys.modules" and not is_own_name(node.slice):
                yield self.see(node, AuditRule("patched", "reject", "replaces a loaded module"))
            elif name == "os.environ" and loads:
                yield from self._environment(node, node.slice)
            elif name == "os.environ":
                yield self.see(node, AuditRule("global-flags", "flag", "sets the environment"))
            elif name.endswith(".__dict__") and not loads:
                yield from self._replaced(node, f"{name.removesuffix('.__dict__')}.{word or '?'}")
            elif name in ("builtins.globals()", "builtins.locals()") and word is None:
                yield self.see(node, AuditRule("hidden-code", "flag", "looks up a computed name"))
        if loads:
            yield from self._watched(node)
        if self._is_foreign(node.value):
            yield from self._computed(node, node.value, node.slice) if loads else (
                self.see(node, _METHOD),)

    def _class(self, node: ast.ClassDef) -> Iterator[Sighting]:
        methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        tensor = any(name in ("torch.Tensor", "torch._C.TensorBase")
                     for base in node.bases for name in self.module.dotted(base))
        if tensor or methods & NAMES["stolen_methods"]:
            yield self.see(node, AuditRule("patched", "flag",
                                           "a tensor subclass that may compute lazily"))


def _may_spell(pattern: str) -> bool:
    """Return whether a text with unknown parts may be a watched attribute's name."""
    spelled = re.compile(".*".join(map(re.escape, pattern.split(HOLE))), re.DOTALL)
    return any(spelled.fullmatch(n) for n in ATTRIBUTES if not n.startswith("get_"))

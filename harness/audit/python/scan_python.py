"""Finds in Python sources, from the syntax tree alone, what no honest kernel needs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import MAX_SOURCE_BYTES
from harness.audit.findings.watched_names import (
    ATTRIBUTES,
    NAMES,
    AuditRule,
    below,
    fetches,
    python_rule,
    reads_clock,
    watched_text,
)
from harness.audit.python.constants import HOLE
from harness.audit.python.imports import Context, Imports
from harness.audit.python.names import Module, UnreadableSource
from harness.audit.python.streams import Streams
from harness.formats.text import words
from harness.verdict import Severity

MAX_LOOKED = 200_000
"""Steps spent on following names in one source; beyond that, names count as unknown."""

_INSIDE_FORMAT = re.compile(r"\{[^{}]*[.\[](\w+)")
_WORDS = re.compile(r"\w+(?:\.\w+)*")
_READERS = {"os.getenv", "os.environ.get", "os.environ.pop", "os.environ.__getitem__"}
_FOLDERS = re.compile(r"HOME|TE?MP|PWD|^PATH$|XDG|CACHE_|KOPT|PYTHON|LD_|INJECTION")
"""Environment variables that name folders of the runner, or what is loaded into it."""

_HANDED_ON = {"builtins.getattr", "builtins.setattr", "builtins.delattr", "builtins.__import__"}
_LOOKERS = words("""
    builtins.getattr builtins.hasattr builtins.setattr builtins.delattr builtins.vars builtins.dir
    builtins.type builtins.isinstance builtins.print inspect.getattr_static operator.attrgetter
    operator.methodcaller importlib.reload""")
"""What a module may be handed to, as the audit knows what these return."""

_COMPUTED = AuditRule("hidden-code", "flag", "uses a computed name")
_METHOD = AuditRule("patched", "flag", "replaces a method")
_ENVIRONMENT = AuditRule("files", "flag", "reads the environment")
_FETCHERS = ("subprocess", "os.system", "os.popen", "os.posix_spawn", "os.execv", "os.execvp",
             "os.spawnv", "asyncio.create_subprocess_exec", "pty.spawn")

def scan(data: bytes, file: str, context: Context) -> tuple[Module | None, list[Sighting]]:
    """Return the parsed module, None if it cannot be parsed, and all sightings."""
    if len(data) > MAX_SOURCE_BYTES:
        return None, [Sighting(rule="hidden-code", severity="flag", file=file,
                               what="too large to audit")]
    try:
        module = Module(data, file, context.modules)
        return module, list(_Scan(module, context).all())
    except (UnreadableSource, RecursionError, MemoryError):
        return None, [Sighting(rule="hidden-code", severity="flag", file=file,
                               what="cannot be read as Python")]


def texts(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield (node, text) of the string constants of a module, docstrings excepted."""
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) \
                and not isinstance(module.parents.get(node), ast.Expr):
            yield node, module.pattern(node)


class _Scan(Imports):
    def __init__(self, module: Module, context: Context) -> None:
        super().__init__(module, context)
        self.looked = 0
        self.streams = Streams(module)

    def all(self) -> Iterator[Sighting]:
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
                yield from (self.see(node, rule, word) for word in node.kwd_attrs
                            if (rule := ATTRIBUTES.get(word)))
        for node, text in texts(self.module):
            yield from self._text(node, text)

    def _mention(self, node: ast.Name | ast.Attribute) -> Iterator[Sighting]:
        if isinstance(self.module.parents.get(node), ast.Attribute):
            return
        if not isinstance(node.ctx, ast.Load):
            yield from self._store(node)
            return
        names = self.module.dotted(node)
        for name in sorted(names):
            module, _, last = name.rpartition(".")
            if self._is_reference(module) and last == self.context.function:
                yield self.see(node, AuditRule("delegation", "reject", "imports the reference"))
            if self._is_own(name):
                continue
            if isinstance(node, ast.Name) and "." not in name:
                if name in NAMES["modules"] and self._is_handed_on(node):
                    yield self.see(node, AuditRule("frame-walk", "flag", "hands on a module"), name)
            elif name in _HANDED_ON and self._is_handed_on(node):
                yield self.see(node, _COMPUTED, name)
            elif (rule := python_rule(name)) and not self._exempt(node, name):
                yield self.see(node, rule, name, severity=self._severity(node, name))
            elif below(name, NAMES["streams"]):
                yield self._stream(node, name)
        chain: ast.AST = node
        while isinstance(chain, ast.Attribute):
            if (rule := ATTRIBUTES.get(chain.attr)) and not (
                    chain is node and any(python_rule(name) == rule for name in names)):
                yield self.see(node, rule, chain.attr)
            chain = chain.value

    def _exempt(self, node: ast.AST, name: str) -> bool:
        parent = self.module.parents.get(node)
        if name == "sys.exit" or name.startswith("signal.SIG"):
            return node in self.module.guarded
        return name.startswith("sys.modules.") or (
            name in ("sys.modules", "os.environ")
            and isinstance(parent, ast.Subscript | ast.Compare))

    def _is_handed_on(self, node: ast.AST) -> bool:
        """Return whether a name is used as a value: neither called, nor only given another name."""
        parent = self.module.parents.get(node)
        if isinstance(parent, ast.Call):
            getter = parent.func.func if isinstance(parent.func, ast.Call) else parent.func
            return parent.func is not node and not self.module.dotted(getter) & _LOOKERS
        return not (isinstance(parent, ast.NamedExpr | ast.Expr) or (
            isinstance(parent, ast.Assign) and all(isinstance(t, ast.Name) for t in parent.targets)
            and not isinstance(self.module.parents.get(parent), ast.ClassDef)))

    def _severity(self, node: ast.AST, name: str) -> Severity | None:
        """Return `reject` for code that is decoded first, which has no honest use."""
        call = self.module.parents.get(node)
        if name.startswith("builtins.") and isinstance(call, ast.Call) and call.func is node \
                and name.removeprefix("builtins.") in ("exec", "eval", "compile") \
                and self._fed_by_decoder(call):
            return "reject"
        if name.startswith("mmap.PROT_EXEC"):
            return "reject"
        return None

    def _fed_by_decoder(self, call: ast.Call) -> bool:
        seen: set[str] = set()
        todo: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
        while todo and self.looked < MAX_LOOKED:
            node = todo.pop()
            self.looked += 1
            if isinstance(node, ast.Name | ast.Attribute):
                for name in self.module.dotted(node):
                    rule = python_rule(name)
                    if rule is not None and rule.why == "decodes hidden data":
                        return True
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                todo += self.module.assigned.get(node.id, [])
            todo += ast.iter_child_nodes(node)
        return False

    def _stream(self, node: ast.AST, name: str) -> Sighting:
        """Flag work on a side stream; only note it if the caller's stream waits for it."""
        rule = AuditRule("threads", "flag", "works on a side stream that must be joined")
        joined = self.streams.joined(node, made=name.endswith(".Stream"))
        return self.see(node, rule, name, severity="note" if joined else None)

    def _store(self, node: ast.Name | ast.Attribute) -> Iterator[Sighting]:
        if not isinstance(node, ast.Attribute):
            return
        names = self.module.dotted(node)
        for name in sorted(names):
            yield from self._replaced(node, name)
        if not names and (node.attr in NAMES["methods"] or self._is_foreign_class(node.value)):
            yield self.see(node, _METHOD, node.attr)

    def _is_foreign_class(self, node: ast.AST) -> bool:
        """Return whether an expression is the class, or the dictionary, of an unknown object."""
        if isinstance(node, ast.Call) and len(node.args) == 1 \
                and self.module.dotted(node.func) & {"builtins.type", "builtins.vars"}:
            of: ast.AST = node.args[0]
        elif isinstance(node, ast.Attribute) and node.attr in ("__class__", "__dict__"):
            of = node.value
        else:
            return False
        return not (isinstance(of, ast.Name) and of.id in ("self", "cls", *self.module.own)) \
            and not self.module.dotted(node)

    def _replaced(self, node: ast.AST, name: str) -> Iterator[Sighting]:
        if self._is_own(name) or name.partition(".")[0] in self.module.own:
            return
        if name.startswith("torch.backends."):
            yield self.see(node, AuditRule("global-flags", "flag", "sets a flag of torch"), name)
        elif below(name, NAMES["judges"]):
            yield self.see(node, AuditRule("patched", "reject", "replaces code that judges it"),
                           name)
        else:
            yield self.see(node, AuditRule("patched", "flag", "replaces a part of a library"), name)

    def _call(self, node: ast.Call) -> Iterator[Sighting]:
        for name in sorted(self.module.dotted(node)):
            if "." in name and (rule := python_rule(name)) and not self._is_own(name) \
                    and not self._exempt(node, name):
                yield self.see(node, rule, name)
        for of, attribute in self.module.gets(node):
            yield from self._computed(node, of, attribute)
        if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES["writes"] \
                and self._is_foreign_class(node.func.value):
            yield self.see(node, _METHOD)
        for name in sorted(self.module.dotted(node.func)):
            if name in NAMES["setters"] and len(node.args) > 1:
                yield from self._set(node)
            elif ".__dict__." in name and name.rpartition(".")[2] in NAMES["writes"]:
                yield from self._replaced(node, f"{name.partition('.__dict__')[0]}.?")
            elif name in ("operator.attrgetter", "operator.methodcaller"):
                for attribute in node.args[:1 if name.endswith("caller") else None]:
                    yield from self._computed(node, None, attribute)
            elif name in _READERS and node.args:
                yield from self._environment(node, node.args[0])
            elif name in ("builtins.__import__", "importlib.import_module"):
                word = self.module.fold(node.args[0]) if node.args else None
                if word is None:
                    yield self.see(
                        node, AuditRule("hidden-code", "flag", "imports a computed name")
                    )
                else:
                    yield from self._module(node, word)
                    if (rule := python_rule(word)) and rule.rule == "network":
                        yield self.see(node, rule, word)
            elif name in ("sys.modules.get", "sys.modules.pop") and node.args:
                yield from self._sys_module(node, node.args[0])
            elif name.startswith("sys.modules."):
                yield self.see(node, AuditRule("frame-walk", "flag", "walks the loaded modules"))
            elif below(name, NAMES["openers"]):
                yield from self._open(node, name)
            elif name == "torch.cuda.Event" and any(
                    k.arg == "enable_timing" or k.arg is None for k in node.keywords):
                yield self.see(node, AuditRule("timing", "flag", "measures itself"), name)
            if below(name, _FETCHERS) and fetches(self._words(node)):
                yield self.see(node, AuditRule("network", "reject", "fetches a package or a file"))

    def _words(self, node: ast.AST) -> str:
        words = [self.module.fold(n) for n in ast.walk(node)
                 if isinstance(n, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Name)]
        return " ".join(word for word in words if word)

    def _set(self, node: ast.Call) -> Iterator[Sighting]:
        of, word = node.args[0], self.module.fold(node.args[1])
        names = [n for n in self.module.dotted(of) if not n.startswith("builtins.")]
        for base in sorted(names):
            yield from self._replaced(node, f"{base}.{word or '?'}")
        if not names and (word in NAMES["methods"] or self._is_foreign_class(of)):
            yield self.see(node, _METHOD, word or "")

    def _computed(self, node: ast.Call, of: ast.AST | None, name: ast.AST) -> Iterator[Sighting]:
        """Check an attribute that is named by a text: `getattr(of, name)`, `attrgetter(name)`."""
        text = self.module.pattern(name)
        if HOLE not in text:
            for word in text.split("."):
                if rule := ATTRIBUTES.get(word):
                    yield self.see(node, rule, word)
            return
        names = sorted(() if of is None else self.module.dotted(of))
        called = isinstance(self.module.parents.get(node), ast.Call)
        standard = any(n.partition(".")[0] in sys.stdlib_module_names for n in names)
        if of is None or standard or (names and called):
            yield self.see(node, _COMPUTED, names[0] if names else "")
        elif not names and len(text) > 1:
            spelled = re.compile(".*".join(map(re.escape, text.split(HOLE))), re.DOTALL)
            if any(spelled.fullmatch(word) for word in ATTRIBUTES
                   if not word.startswith("get_")):
                yield self.see(node, _COMPUTED)

    def _environment(self, node: ast.AST, key: ast.AST) -> Iterator[Sighting]:
        name = self.module.fold(key)
        if name is None or _FOLDERS.search(name):
            yield self.see(node, _ENVIRONMENT, name or "")

    def _subscript(self, node: ast.Subscript) -> Iterator[Sighting]:
        for name in sorted(self.module.dotted(node.value)):
            if name == "sys.modules":
                if isinstance(node.ctx, ast.Load):
                    yield from self._sys_module(node, node.slice)
                elif not _own_name(node.slice):
                    yield self.see(node, AuditRule("patched", "reject", "replaces a loaded module"))
            elif name == "os.environ":
                if isinstance(node.ctx, ast.Load):
                    yield from self._environment(node, node.slice)
                else:
                    yield self.see(node, AuditRule("global-flags", "flag", "sets the environment"))
            elif name.endswith(".__dict__") and not isinstance(node.ctx, ast.Load):
                word = self.module.fold(node.slice) or "?"
                yield from self._replaced(node, f"{name.removesuffix('.__dict__')}.{word}")
            elif name in ("builtins.globals()", "builtins.locals()") \
                    and self.module.fold(node.slice) is None:
                yield self.see(node, AuditRule("hidden-code", "flag", "looks up a computed name"))
        if not isinstance(node.ctx, ast.Load):
            if self._is_foreign_class(node.value):
                yield self.see(node, _METHOD)
            return
        for name in sorted(self.module.dotted(node)):
            if (rule := python_rule(name)) and not self._is_own(name) and not self._exempt(node, name):
                yield self.see(node, rule, name)

    def _sys_module(self, node: ast.AST, key: ast.expr) -> Iterator[Sighting]:
        if _own_name(key):
            return
        word = self.module.fold(key)
        if word is None:
            yield self.see(node, AuditRule("frame-walk", "flag", "looks up a loaded module"))
        elif word == "__main__":
            yield self.see(node, AuditRule("frame-walk", "reject", "looks up the runner"))
        else:
            yield from self._module(node, word)

    def _class(self, node: ast.ClassDef) -> Iterator[Sighting]:
        methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        tensor = any(name in ("torch.Tensor", "torch._C.TensorBase")
                     for base in node.bases for name in self.module.dotted(base))
        if tensor or methods & NAMES["stolen_methods"]:
            yield self.see(node, AuditRule("patched", "flag",
                                           "a tensor subclass that may compute lazily"))

    def _open(self, node: ast.Call, name: str) -> Iterator[Sighting]:
        path: ast.AST | None = node.args[0] if node.args else next(
            (k.value for k in node.keywords if k.arg in ("file", "f", "path")), None)
        text = self.module.fold(path)
        mode = self.module.fold(node.args[1]) if len(node.args) > 1 else next(
            (self.module.fold(k.value) for k in node.keywords if k.arg == "mode"), None)
        if name.startswith("pathlib.") and (path is None or "__file__" in self._names(node)):
            return
        if mode and set(mode) & set("wax+"):
            yield self.see(node, AuditRule("files", "flag", "writes a file"), name)
        elif text is None:
            if "__file__" not in self._names(path) or ".." in self._words(node):
                yield self.see(node, AuditRule("files", "flag", "opens a computed path"), name)
        elif text.startswith(("/", "~")) or ".." in text.split("/"):
            yield self.see(node, AuditRule("files", "flag", "opens a file outside the project"))
        elif self.context.reference and text.endswith(".py") \
                and self._is_reference(text.removesuffix(".py").replace("/", ".")):
            yield self.see(node, AuditRule("files", "reject", "reads the reference"))
        elif name in ("numpy.load", "torch.load"):
            yield self.see(node, AuditRule("files", "flag", "loads stored data"), name)

    def _names(self, node: ast.AST | None) -> set[str]:
        """Return the names that an expression depends on, transitively."""
        seen: set[str] = set()
        todo = [] if node is None else [node]
        while todo and self.looked < MAX_LOOKED:
            for inner in ast.walk(todo.pop()):
                self.looked += 1
                if isinstance(inner, ast.Name) and inner.id not in seen:
                    seen.add(inner.id)
                    todo += self.module.assigned.get(inner.id, [])
        return seen

    def _text(self, node: ast.AST, text: str) -> Iterator[Sighting]:
        for rule, name in watched_text(text):
            yield self.see(node, rule, name)
        plain = _WORDS.fullmatch(text)
        for word in text.split(".") if plain else _INSIDE_FORMAT.findall(text):
            watched = ATTRIBUTES.get(word)
            if watched is not None and watched.rule == "frame-walk":
                yield self.see(node, watched, word, severity="flag" if plain else None)
        if reads_clock(text) and "__global__" not in text:
            yield self.see(node, AuditRule("timing", "flag", "reads a clock in assembly"))
        if "kopt_kernel" in text or "kopt_reference" in text or text.startswith("KOPT_"):
            yield self.see(node, AuditRule("frame-walk", "flag", "names a part of the harness"))


def _own_name(key: ast.AST) -> bool:
    return isinstance(key, ast.Name) and key.id == "__name__"

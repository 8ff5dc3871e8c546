"""The `rewrite-template` backend: a known good form of an op, fitted to the target's signature.

Templates are C sources in knowledge/backend/c/. A first comment line names the argument dtypes
and roles that they fit; `@entry@` and `@name@` are replaced by the target's own names.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

import msgspec

from engine.task import Task
from engine.workers.knob_search import search, summary
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.target import Target

KNOWLEDGE = Path(__file__).resolve().parent.parent.parent / "knowledge" / "backend"
_SIGNATURE = re.compile(r"^// kopt: template (?P<op>\w+)\((?P<args>[^)]*)\)")


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One template: the op it computes, its parameters in call order as `name: dtype role`."""

    name: str
    op: str
    parameters: tuple[tuple[str, str, str], ...]
    text: str

    def fits(self, target: Target) -> bool:
        """Tell whether the target's arguments are the template's, in order, dtype and role."""
        wanted = [(dtype, role) for _, dtype, role in self.parameters]
        return wanted == [(arg.dtype, arg.kind) for arg in target.args]

    def fill(self, target: Target) -> str:
        text = self.text.partition("\n")[2].replace("@entry@", target.entry)
        for (name, _, _), arg in zip(self.parameters, target.args, strict=True):
            text = text.replace(f"@{name}@", arg.name)
        return text


def templates(language: str) -> list[Template]:
    """Return the templates of a language, by name."""
    return [_read(path) for path in sorted((KNOWLEDGE / language).glob("*.c.in"))]


def find(target: Target) -> list[Template]:
    """Return the templates that compute the target's op with its signature."""
    words = set(re.split(r"[^a-z0-9]+", target.op.lower()))
    return [t for t in templates(target.language) if t.op in words and t.fits(target)]


def _read(path: Path) -> Template:
    text = path.read_text()
    found = _SIGNATURE.match(text)
    if found is None:
        raise ValueError(f"{path} does not begin with a template line")
    parameters = []
    for word in found["args"].split(","):
        name, dtype, *role = word.split()
        parameters.append((name, dtype, role[0] if role else "input"))
    return Template(name=path.name.removesuffix(".c.in"), op=found["op"],
                    parameters=tuple(parameters), text=text)


class TemplateWorker:
    """Replaces the source by a filled template, then searches the template's own knobs."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        target = bench.target
        fitting = {} if isinstance(target, CommandTarget) else {t.name: t for t in find(target)}
        if isinstance(target, CommandTarget) or task.option not in fitting:
            raise Refused(f"no template {task.option!r} fits {bench.target.op}")
        tick("rewriting", f"template {task.option}", None)
        source = Path(bench.worktree) / bench.target.source
        source.write_bytes(fitting[task.option].fill(target).encode())
        result = search(task, bench, target, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        source.write_bytes(result.source.encode())
        return Report(ok=True, summary=f"template {task.option}; {summary(result)}",
                      trials=result.trials)

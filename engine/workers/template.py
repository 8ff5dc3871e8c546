"""The `rewrite-template` backend: a known fast form of an op, with the target's signature.

Templates are C sources in knowledge/backend/c/. The first line of each is a comment with the op and
the dtypes and roles of its arguments; the target's names replace `@entry@` and `@name@`.
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
from harness.tasks.target import Target

KNOWLEDGE = Path(__file__).resolve().parent.parent.parent / "knowledge" / "backend"
_SIGNATURE = re.compile(r"^// kopt: template (?P<op>\w+)\((?P<args>[^)]*)\)")


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A source to fill in; its parameters are (name, dtype, role) in call order."""

    name: str
    op: str
    parameters: tuple[tuple[str, str, str], ...]
    text: str

    def fits(self, target: Target) -> bool:
        """Return whether the target's arguments have the template's dtypes and roles, in order."""
        expected = [(dtype, role) for _, dtype, role in self.parameters]
        return expected == [(arg.dtype, arg.kind) for arg in target.args]

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
    return [template for template in templates(target.language)
            if template.op in words and template.fits(target)]


def _read(path: Path) -> Template:
    text = path.read_text()
    signature = _SIGNATURE.match(text)
    if signature is None:
        raise ValueError(f"{path} does not begin with `// kopt: template OP(ARGUMENTS)`")
    parameters = []
    for word in signature["args"].split(","):
        name, dtype, *role = word.split()
        parameters.append((name, dtype, role[0] if role else "input"))
    return Template(name=path.name.removesuffix(".c.in"), op=signature["op"],
                    parameters=tuple(parameters), text=text)


class TemplateWorker:
    """Replaces the source by a filled template, then searches over the template's knobs."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        target = bench.target
        fitting = [] if isinstance(target, CommandTarget) else [
            template.fill(target) for template in find(target) if template.name == task.option]
        if not fitting:
            raise Refused(f"no template {task.option!r} fits {target.op}")
        tick("rewriting", f"template {task.option}", None)
        source = Path(bench.worktree) / target.source
        source.write_bytes(fitting[0].encode())
        result = search(task, bench, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        source.write_bytes(result.source.encode())
        return Report(ok=True, summary=f"template {task.option}; {summary(result)}",
                      trials=result.trials)

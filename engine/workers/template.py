"""The `rewrite-template` backend: uses a known fast kernel for an op, also inside a module.

A C kernel is replaced by a source of knowledge/backend/c/. The first line of each is a comment with
the op and the dtypes and roles of its arguments; the target's names replace `@entry@` and `@name@`.
A PyTorch module gets a ModelNew: see `engine/rewrites`.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path

import msgspec

from engine.rewrites import module_rewrite
from engine.task import Task
from engine.workers import knob_search
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.tasks.target import Target

KNOWLEDGE = Path(__file__).resolve().parent.parent.parent / "knowledge" / "backend"
MODULE_SHARE = 3
"""A module's rewrite gets 1 / MODULE_SHARE of the trials: its verdict should come soon, and later
rounds search all knobs of what was kept."""
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
    op_words = set(re.split(r"[^a-z0-9]+", target.op.lower()))
    return [template for template in templates(target.language)
            if template.op in op_words and template.fits(target)]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A rewrite that fits a target: the option of its task, and its hypothesis."""

    name: str
    hypothesis: str


def offers(target: Target, tree: Path, baseline: Path, scratch: Path, *,
           python: str | None = None) -> tuple[tuple[Offer, ...], str]:
    """Return the rewrites that fit a target, and for a module without any the reason, else ""."""
    if not target.is_module:
        return tuple(Offer(name=template.name, hypothesis="a known good form of the op: template "
                           + template.name) for template in find(target)), ""
    result = module_rewrite.find(target, tree, baseline, scratch, python=python)
    return tuple(Offer(name=rewrite.name, hypothesis=rewrite.hypothesis)
                 for rewrite in result.rewrites), result.nothing


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


def work(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
    """Replace the source by a filled template, then search over the template's knobs.

    For a module without a GPU the search is skipped: Triton is interpreted there and not timed.
    """
    target = bench.target
    tick("rewriting", f"template {task.option}", None)
    fitting = [] if isinstance(target, CommandTarget) else _sources(target, task, bench)
    if not fitting:
        raise Refused(f"no template {task.option!r} fits {target.op}")
    source = Path(bench.worktree) / target.source
    source.write_bytes(fitting[0].encode())
    if target.is_module and bench.device.kind == "cpu":
        return Report(ok=True, summary=f"{task.option}: not searched, no GPU to time on")
    if target.is_module:
        task = msgspec.structs.replace(task, trials=-(-task.trials // MODULE_SHARE))
    return knob_search.work(task, bench, tick, cancel, changed=f"template {task.option}")


def _sources(target: Target, task: Task, bench: WorkerBench) -> list[str]:
    if not target.is_module:
        return [template.fill(target) for template in find(target)
                if template.name == task.option]
    result = module_rewrite.find(target, Path(bench.worktree), Path(bench.baseline),
                                 Path(bench.scratch), python=bench.python)
    return [rewrite.source for rewrite in result.rewrites if rewrite.name == task.option]

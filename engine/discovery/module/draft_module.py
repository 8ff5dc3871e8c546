"""Draft the task of a PyTorch module from the facts that a guarded process learned about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from engine.discovery.module import module_files, problem_facts
from engine.discovery.module.problem_facts import LearnedArg, ModuleFacts
from engine.discovery.module.problem_facts import Size as Size
from engine.discovery.new.draft_kernel import DraftedTarget, dump_task
from harness.formats.text import plain
from harness.isolation.zygote_client import Zygote
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import check

FOLDER = "kopt_task"
"""The folder of the generated files, in the project."""


def draft(project: Path, source: str, folder: str, scratch: Path, *,
          sizes: Mapping[str, Size], small: bool, training: bool | None = None,
          zygote: Zygote | None = None) -> DraftedTarget:
    """Return the task of the module in `source`; its files go to `folder` of the project.

    Raises InputError if the file does not run or its module cannot be a task.
    """
    facts = problem_facts.learn(project / source, scratch, sizes=sizes, small=small,
                                training=training, zygote=zygote)
    adapter, reference = f"{folder}/adapter.py", f"{folder}/reference.py"
    target = Target(
        op=_op(source), language="python", source=source, entry="Model",
        reference=f"{reference}:{module_files.REFERENCE}",
        adapter=f"{adapter}:{module_files.FUNCTION}", returns=True,
        return_dtypes=tuple(output.dtype for output in facts.outputs),
        args=tuple(Arg(name=each.name, dtype=each.dtype, shape=each.shape, low=each.low,
                       high=each.high, structure=each.structure,
                       role="inout" if each.written else "input") for each in facts.args),
        classes=(ConfigClass(name="resized" if facts.changed else "full", shape=facts.sizes),),
        flops=facts.flops, bytes=facts.bytes, float64=facts.float64, backend="PYTORCH",
        description=f"PyTorch module of {source}; a candidate may define ModelNew")
    check(target)
    return DraftedTarget(target=target, reasons=_reasons(facts), files={
        f"{folder}/task.yaml": dump_task(target), adapter: module_files.adapter(facts, source),
        reference: module_files.reference(facts, source, folder)})


def _op(source: str) -> str:
    """Return the op's name: the file's, without the number that benchmark sets put before it."""
    stem = re.sub(r"^\d+_", "", Path(source).stem).strip("_")
    return re.sub(r"[^A-Za-z0-9._-]", "_", stem)[:64] or "module"


def _reasons(facts: ModuleFacts) -> tuple[str, ...]:
    lines = [f"{arg.name}: {arg.dtype} {_shape(arg.shape)}"
             + (f", {_bounds(arg)} ({arg.why})" if arg.why else "")
             + (", a buffer that a call writes" if arg.written
                else ", a weight" if arg.weight else "") for arg in facts.args]
    lines += [f"returns {output.dtype} {_shape(output.shape)}" for output in facts.outputs]
    if facts.changed:
        lines.append("sizes: " + ", ".join(
            f"{name}={now} (in the file {in_file})"
            for name, (in_file, now) in facts.changed.items()))
    return tuple(plain(line, 200) for line in (*lines, *facts.notes))


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _bounds(arg: LearnedArg) -> str:
    if arg.low is None or arg.high is None:
        return arg.structure or "any values"
    if isinstance(arg.high, str):
        last = arg.high.removesuffix(" + 1") if arg.high.endswith(" + 1") else f"{arg.high} - 1"
        return f"{arg.low:g} to {last}"
    whole = "float" not in arg.dtype
    return f"{arg.low:g} {'or' if arg.structure else 'to'} {arg.high - 1 if whole else arg.high:g}"


def numbered(name: str) -> tuple[int, str]:
    """Return a sort key: the number with which a file's or folder's name begins, then the name."""
    first = name.partition("_")[0]
    return int(first) if first.isdigit() else 0, name

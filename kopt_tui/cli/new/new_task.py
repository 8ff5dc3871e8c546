"""Draft the task file of a C, CUDA or HIP kernel from its source, flags and answers."""

from __future__ import annotations

import argparse
import ast
import keyword
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from engine.discovery.new import draft_kernel
from engine.discovery.new.draft_kernel import check_shape
from engine.discovery.new.launch_constant import with_block_constant
from engine.discovery.project import device_sources, program_call, sources
from engine.routing.source_language import top_level
from harness.errors import InputError
from harness.formats.quantities import listed
from harness.tasks import target, task_file
from harness.tasks.target import Launch
from kopt_tui.cli.new.parameter_list import pairs
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text

QUESTION = "the reference (FILE:FUNCTION in Python, which computes the correct result)"
EXAMPLE = "tall: rows=1024 cols=64"
SUPPORTED = "numbers and pointers to numbers, such as int n, const float *x"
MOST_REFUSED = 3
"""Most functions that a message names."""


def choose(project: Path, args: argparse.Namespace, prompt: Prompt) -> tuple[str, bool]:
    """Return the task file's path in the project, and whether it was drafted now."""
    if args.task is not None and (project / args.task).exists():
        return str(args.task), False
    files = sources.task_files(project)
    names = [file.relative_to(project).as_posix() for file in files if args.source is None
             or task_file.load(file).source == args.source]
    if args.task is None and names:
        return prompt.choice("the task file", "--task", names), False
    name = args.task or (f"{Path(args.source).stem}_task.yaml" if files else "task.yaml")
    _draft_task(project, project / name, args, prompt)
    return str(name), True


def _draft_task(project: Path, path: Path, args: argparse.Namespace, prompt: Prompt) -> None:
    """Write a task file; without a terminal raises InputError naming the missing flag."""
    source = _source(project, args, prompt)
    function = _function(project / source, args, prompt)
    reference = _reference(args.reference, project, function, prompt)
    call = program_call.find(function, sources.program_texts(project, project / source))
    function = msgspec.structs.replace(function, launch=_launch(
        function, call.launch, args, prompt, sources.read_source(project / source)),
        flags=(*function.flags, *sources.header_flags(project, project / source))
        if function.language == "c" else ())
    shapes = {**call.shapes, **pairs(args.shape, "--shape")}
    scalars = {**call.scalars, **pairs(args.scalar, "--scalar")}
    sizes = [arg.name for arg in function.args if isinstance(arg.value, str)]
    tensors = [arg.name for arg in function.args if arg.shape is not None
               and arg.name not in shapes]  # a C signature does not have their shapes
    values = [arg.name for arg in function.args if arg.shape is None and arg.value is None
              and arg.name not in scalars]
    free = [name for name in sizes if name not in scalars]
    classes = args.classes or call.classes(free)
    example = _example_class([*free, *shapes.values()])
    default = sizes[0] if len(sizes) == 1 else ""
    if not prompt.interactive:
        _expect_all(function, [] if default else tensors, values,
                    "" if classes else example)
    for name in tensors:
        shapes[name] = prompt.text(
            f"shape of {name} (sizes: {', '.join(sizes) or 'numbers'})", f"--shape {name}=DIMS",
            default, check=partial(check_shape, function, name))
    for name in values:
        scalars[name] = prompt.text(f"value of {name}", f"--scalar {name}=VALUE")

    def drafted(classes: list[str]) -> target.Target:
        return draft_kernel.draft(function, source, reference, shapes, scalars, classes,
                                  pairs(args.role, "--role"))

    task = drafted(classes or _classes(
        prompt, drafted, _example_class([*free, *shapes.values()])))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draft_kernel.dump_task(task), encoding="utf-8")
    for line in draft_kernel.explain(task, tries=args.first_check):
        print(f"  {line}", file=sys.stderr)
    for each in [] if args.classes else classes:
        name, _, text = each.partition(": ")
        print(f"  {f'class {name}':18} {text}  (as the program calls it)", file=sys.stderr)
    print_text(f"wrote {path}; add a tolerance, flops or weights where the defaults do not fit",
               sys.stderr)


def _expect_all(function: sources.CFunction, tensors: Sequence[str], values: Sequence[str],
                example: str) -> None:
    """Raise InputError for all that flags must still give, if it is more than one thing."""
    missing = [*(f"the shape of {name}" for name in tensors),
               *(f"the value of {name}" for name in values), *["a config class"] * bool(example)]
    if len(missing) > 1:
        flags = [*(f"--shape {name}=DIMS" for name in tensors),
                 *(f"--scalar {name}=VALUE" for name in values),
                 *[f"--class '{example}'"] * bool(example)]
        raise InputError(f"{function.name}: kopt needs {', '.join(missing)}",
                         fix=f"add {' '.join(flags)}")


def _reference(given: str | None, project: Path, function: sources.CFunction,
               prompt: Prompt) -> str:
    """Return the reference as the task names it: given, found in reference.py, or asked for.

    It may be the baseline itself. Raises InputError.
    """
    entry = function.name.partition("<")[0]
    if given:
        return _checked(given, project, function)
    if f"def {entry}(" in sources.read_source(project / "reference.py"):
        return f"reference.py:{entry}"
    inputs = ", ".join(arg.name for arg in function.args
                       if arg.kind != "output" and not isinstance(arg.value, str))
    answer = prompt.text(QUESTION, "--reference FILE:FUNCTION, or write "
                         f"`def {entry}({inputs})` in reference.py, which returns the outputs",
                         target.BASELINE,
                         check=lambda text: _checked(text, project, function))
    return _checked(answer, project, function)


def _checked(text: str, project: Path, function: sources.CFunction) -> str:
    """Return a reference, its file relative to the project.

    `text` may name the file relative to the project or to the current folder. Raises InputError if
    it does not exist, or has parameters that are no arguments of the kernel.
    """
    if text == target.BASELINE:
        return text
    file, _, name = text.partition(":")
    name = name or function.name.partition("<")[0]
    root = project.resolve()
    path = next((path for path in (root / file, Path(os.path.abspath(file))) if path.is_file()),
                None)
    if path is None:
        raise InputError(f"the reference's file {file!r} does not exist", where=str(project),
                         fix="write FILE:FUNCTION")
    if not path.is_relative_to(root):
        raise InputError("the reference's file lies outside the project", where=str(path),
                         fix=f"copy it to {project}")
    source = sources.read_source(path)
    if name not in source:
        raise InputError(f"there is no function {name!r}", where=str(path),
                         fix="write FILE:FUNCTION")
    known = {f"{arg.name}_" if keyword.iskeyword(arg.name) else arg.name for arg in function.args}
    if other := [each for each in _parameters(source, name) if each not in known]:
        raise InputError(f"parameter {', '.join(other)} is not an argument of {function.name}",
                         where=f"{path}:{name}", fix=f"it may take {', '.join(sorted(known))}")
    return f"{path.relative_to(root).as_posix()}:{name}"


def _parameters(source: str, name: str) -> list[str]:
    """Return the parameters of a function that have no default; none if the text has no `def`."""
    for node in top_level(source):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            named, spec = [*node.args.posonlyargs, *node.args.args], node.args
            needed = named[:len(named) - len(spec.defaults)]
            needed += [each for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
                       if value is None]
            return [each.arg for each in needed]
    return []


def _source(project: Path, args: argparse.Namespace, prompt: Prompt) -> Path:
    if args.source is not None:
        if not (project / args.source).is_file():
            raise InputError(f"the source {args.source!r} does not exist", where=str(project))
        return Path(args.source)
    files = sources.kernel_sources(project) or device_sources.kernel_files(project)
    names = [path.relative_to(project).as_posix() for path in files]
    if not names:
        raise InputError("there is no task.yaml, and no C, CUDA or HIP kernel to write one for",
                         where=str(project),
                         fix="name a function, FILE:FUNCTION; or the project's benchmark: "
                         "--benchmark COMMAND --csv FILE")
    return Path(prompt.choice("the kernel's source", "--source", names))


def _function(source: Path, args: argparse.Namespace, prompt: Prompt) -> sources.CFunction:
    text, is_for_gpu = sources.read_source(source), source.name.endswith(device_sources.SUFFIXES)
    functions = {entry.name: entry for entry in (
        device_sources.functions(source.name, text) if is_for_gpu else sources.c_functions(text))}
    refused = {} if is_for_gpu else {
        name: f"{name} takes {part}" for name, part in sources.refused_parameters(text).items()}
    if args.entry is not None:
        if args.entry not in functions:
            why = f": {refused[args.entry]}" if args.entry in refused else ""
            raise InputError(f"no function {args.entry!r} with arguments that kopt supports{why}",
                             where=str(source),
                             fix=f"supported: {', '.join(functions) or 'none'}")
        return functions[args.entry]
    if not functions:
        why = f": {listed(list(refused.values()), MOST_REFUSED)}" if refused else ""
        raise InputError(f"no function with arguments that kopt supports{why}", where=str(source),
                         fix=device_sources.advice(text) if is_for_gpu else
                         f"add one that is not static and takes {SUPPORTED}")
    default = source.stem if source.stem in functions else next(
        (entry.name for entry in functions.values() if draft_kernel.can_build(entry)), "") \
        if is_for_gpu else ""
    return functions[prompt.choice("the kernel's function", "--entry", list(functions), default)]


def _launch(function: sources.CFunction, known: Launch | None, args: argparse.Namespace,
            prompt: Prompt, source: str) -> Launch | None:
    """Return the launch of a `__global__` function: the program's, except where flags override it.

    If the source can define a constant for the block, a knob may change it.
    """
    if not function.is_global:
        return None
    names = "the sizes, scalars and constants of the source"
    grid, block, shared = (
        draft_kernel.parse_dims(flag) if flag is not None else dims
        for flag, dims in ((args.grid, known and known.grid), (args.block, known and known.block),
                          (args.shared, (known.shared_bytes,) if known else (0,))))
    grid = grid or draft_kernel.parse_dims(prompt.text(f"grid (in {names})", "--grid DIMS"))
    block = block or draft_kernel.parse_dims(prompt.text(f"block (in {names})", "--block DIMS"))
    return with_block_constant(
        Launch(grid=grid, block=block, shared_bytes=(shared or (0,))[0],
               defaults=known.defaults if known else {}), function.name, source)


def _classes(prompt: Prompt, draft: Callable[[list[str]], target.Target],
             example: str) -> list[str]:
    """Return the config classes that a person names; ask again for one that does not fit."""
    classes: list[str] = []
    while True:
        if classes and not prompt.interactive:
            return classes
        text = prompt.text("another config class, or nothing" if classes else
                           f"a config class (such as {example})", "--class", optional=bool(classes),
                           check=lambda text: draft([*classes, text]))
        if not text:
            return classes
        classes.append(text)


def _example_class(sizes: Sequence[str]) -> str:
    """Return a config class that names the sizes of this kernel."""
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", " ".join(sizes)))
    return f"small: {' '.join(f'{name}=64' for name in names)}" if names else EXAMPLE

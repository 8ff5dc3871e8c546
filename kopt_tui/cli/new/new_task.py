"""Draft the task file of a C, CUDA or HIP kernel from its source, flags and answers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from engine.discovery.module import draft_module
from engine.discovery.new import draft_kernel, named_reference, reference_trial
from engine.discovery.new.draft_kernel import check_shape
from engine.discovery.new.launch_constant import with_block_constant
from engine.discovery.program import host_reference, program_call
from engine.discovery.program.host_reference import HostReference
from engine.discovery.project import device_sources, sources
from harness.errors import InputError
from harness.formats.expression import names_of
from harness.formats.quantities import listed
from harness.tasks import target, task_file
from harness.tasks.target import Launch
from kopt_tui.cli.new.parameter_list import pairs
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

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
    text, others = sources.read_source(project / source), sources.program_texts(
        project, project / source)
    if args.entry is None and (advice := device_sources.extension_advice(
            text, sources.scripts(project), source.name)):
        raise InputError("no function that kopt can call", where=str(project / source), fix=advice)
    function = _function(project / source, others, args, prompt)
    symbols = device_sources.filled_symbols(text, function.name, list(others.values())) \
        if function.is_global else []
    if symbols:
        raise InputError(
            f"{function.name} reads {', '.join(symbols)}, which the program fills with "
            "cudaMemcpyToSymbol: kopt would judge it with zeros", where=str(source),
            fix='make it an argument, or name an extern "C" function of the host that fills it and '
            "launches the kernel")
    has_reference = args.reference or named_reference.in_python(project, function)
    found = [] if has_reference else list(host_reference.find(function, text, others))
    reference = target.BASELINE if found else _reference(args.reference, project, function, prompt)
    call = program_call.find(function, [text, *others.values()])
    shapes = {**call.shapes, **pairs(args.shape, "--shape")}
    scalars = {**call.scalars, **pairs(args.scalar, "--scalar")}
    sizes = [arg.name for arg in function.args if isinstance(arg.value, str)]
    tensors = [arg.name for arg in function.args if arg.shape is not None
               and arg.name not in shapes]  # a C signature does not have their shapes
    values = [arg.name for arg in function.args if arg.shape is None and arg.value is None
              and arg.name not in scalars]
    free = [name for name in sizes if name not in scalars]
    unknown = _unknown_sizes(function, call.launch, args)
    classes = args.classes or ([] if unknown else call.classes(free))
    in_plane = _is_in_plane(function, text)
    example = _example_class([*free, *unknown, *shapes.values()], next(iter(call.sizes), {}),
                             in_plane=in_plane)
    default = "" if len(sizes) != 1 else ", ".join(sizes * 2) if in_plane else sizes[0]
    if not prompt.interactive:
        _expect_all(function, [] if default else tensors, values,
                    _missing_launch(function, call.launch, args, in_plane=in_plane), unknown,
                    "" if classes else example)
    function = msgspec.structs.replace(function, launch=_launch(
        function, call.launch, args, prompt, text),
        flags=(*function.flags, *sources.header_flags(project, project / source)))
    for name in tensors:
        shapes[name] = prompt.text(
            f"shape of {name} (sizes: {', '.join(sizes) or 'numbers'})", f"--shape {name}=DIMS",
            default, check=partial(check_shape, function, name))
    for name in values:
        scalars[name] = prompt.text(f"value of {name}", f"--scalar {name}=VALUE")

    def drafted(classes: list[str]) -> target.Target:
        return draft_kernel.draft(function, source, reference, shapes, scalars, classes,
                                  pairs(args.role, "--role"))

    task = drafted(classes or _classes(prompt, drafted, _example_class(
        [*free, *unknown, *shapes.values()], next(iter(call.sizes), {}), in_plane=in_plane)))
    if found:
        task = _with_host_reference(task, found, project)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draft_kernel.dump_task(task), encoding="utf-8")
    for line in draft_kernel.explain(task, tries=args.first_check):
        print(f"  {line}", file=sys.stderr)
    for each in [] if args.classes else classes:
        name, _, shape = each.partition(": ")
        print(f"  {f'class {name}':18} {shape}  (as the program calls it)", file=sys.stderr)
    rest = [clean(each.name) for each in device_sources.functions(
        source.name, text, list(others.values())) if each.name != function.name] \
        if args.entry is None and source.name.endswith(device_sources.SUFFIXES) else []
    if rest:
        print_text(f"{function.name} is taken; for another kernel of the file: --entry NAME, such "
                   f"as {listed(rest, MOST_REFUSED)}", sys.stderr)
    print_text(f"wrote {path}; add a tolerance, flops or weights where the defaults do not fit",
               sys.stderr)


def _expect_all(function: sources.CFunction, tensors: Sequence[str], values: Sequence[str],
                launch: Sequence[str], unknown: Sequence[str], example: str) -> None:
    """Raise InputError for all that flags must still give."""
    missing = [*(f"the shape of {name}" for name in tensors),
               *(f"the value of {name}" for name in values),
               *(f"the {flag.partition(' ')[0].strip('-')} of its launch" for flag in launch),
               *["a config class"] * bool(example and not unknown),
               *(f"{name}, in the program's launch" for name in unknown)]
    if missing:
        flags = [*(f"--shape {name}=DIMS" for name in tensors),
                 *(f"--scalar {name}=VALUE" for name in values), *launch,
                 *[f"--class '{example}'"] * bool(example)]
        raise InputError(f"{function.name}: kopt needs {', '.join(missing)}",
                         fix=f"add {' '.join(flags)}")


def _missing_launch(function: sources.CFunction, launch: Launch | None,
                    args: argparse.Namespace, *, in_plane: bool) -> list[str]:
    """Return the flags, with examples, for what neither a program nor flags say of a launch."""
    if launch is not None or not function.is_global:
        return []
    sizes = [arg.name for arg in function.args if isinstance(arg.value, str)] or ["64"]
    side, block = (16, "16,16") if in_plane else (256, "256")
    axes = [sizes[-1], sizes[0]] if in_plane else [sizes[0]]
    grid = ", ".join(f"({size} + {side - 1}) // {side}" for size in axes)
    flags = (args.grid, f"--grid '{grid}'"), (args.block, f"--block {block}")
    return [flag for given, flag in flags if given is None]


def _unknown_sizes(function: sources.CFunction, launch: Launch | None,
                   args: argparse.Namespace) -> list[str]:
    """Return the names in a program's launch whose values only config classes can give."""
    if launch is None or args.classes:
        return []
    known = {*function.constants, *launch.defaults, *(arg.name for arg in function.args)}
    sizes = (*(launch.grid if args.grid is None else ()),
             *((launch.shared_bytes,) if args.shared is None else ()))
    return [name for size in sizes if isinstance(size, str)
            for name in sorted(names_of(size)) if name not in known]


def _with_host_reference(task: target.Target, found: Sequence[HostReference],
                         project: Path) -> target.Target:
    """Return the task with the first of the program's CPU functions that can be its reference.

    Its C++ file is written. A function that cannot be one is named with the reason.
    """
    for each in found[:MOST_REFUSED]:
        file = f"{draft_module.FOLDER}/{task.op}_reference.cpp"
        trial = replace(task, reference=f"{file}:{each.name}")
        if not (why := reference_trial.problem(trial, each.text)):
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            (project / file).write_text(each.text, encoding="utf-8")
            return trial
        print_text(clean(f"{each.name} of the program is not the reference: it {why}"), sys.stderr)
    return task


def _reference(given: str | None, project: Path, function: sources.CFunction,
               prompt: Prompt) -> str:
    """Return the reference as the task names it: given, found in reference.py, or asked for.

    It may be the baseline itself. Raises InputError.
    """
    entry = function.name.partition("<")[0]
    if given:
        return named_reference.checked(given, project, function)
    if named_reference.in_python(project, function):
        return f"reference.py:{entry}"
    inputs = ", ".join(arg.name for arg in function.args
                       if arg.kind != "output" and not isinstance(arg.value, str))
    answer = prompt.text(QUESTION, "--reference FILE:FUNCTION, or write "
                         f"`def {entry}({inputs})` in reference.py, which returns the outputs",
                         target.BASELINE,
                         check=lambda text: named_reference.checked(text, project, function))
    return named_reference.checked(answer, project, function)


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


def _function(source: Path, others: Mapping[str, str], args: argparse.Namespace,
              prompt: Prompt) -> sources.CFunction:
    text, is_for_gpu = sources.read_source(source), source.name.endswith(device_sources.SUFFIXES)
    functions = {entry.name: entry for entry in (
        device_sources.functions(source.name, text, list(others.values())) if is_for_gpu
        else sources.c_functions(text))}
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
                         fix=device_sources.advice(text, others) if is_for_gpu else
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
               defaults=known.defaults if known else {}), function.name.partition("<")[0], source)


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


def _is_in_plane(function: sources.CFunction, text: str) -> bool:
    """Return whether the blocks of a `__global__` function have two dimensions."""
    return function.is_global and any(
        each.name == function.name.partition("<")[0] and "threadIdx.y" in each.body
        for each in device_sources.declared(device_sources.plain_text(text)))


def _example_class(sizes: Sequence[str], values: Mapping[str, int], *, in_plane: bool) -> str:
    """Return a config class that names the sizes of this kernel: large enough to keep a GPU busy.
    """
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", " ".join(sizes)))
    size = (1 << 20, 1024, 256, 32)[min(max(len(names), 1 + in_plane), 4) - 1]
    return f"main: {' '.join(f'{name}={values.get(name, size)}' for name in names)}" \
        if names else EXAMPLE

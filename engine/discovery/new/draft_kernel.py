"""Draft a kernel target's manifest and, for a C or GPU kernel that has no task file, that file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.campaign.task_notes import is_undeclared
from engine.discovery.new import parameters
from engine.discovery.new.parameters import Parameters
from engine.discovery.project.sources import CFunction
from engine.manifest.schema import Manifest
from harness.compile.device_code import toolkits
from harness.errors import InputError
from harness.formats import yaml_document, yaml_values
from harness.formats.expression import names_of
from harness.formats.json_codec import to_builtins
from harness.tasks.target import BUILD_FLAGS, Arg, ConfigClass, Role, Target
from harness.tasks.task_file import check

ZERO_ONE = "drawn from 0 and 1: write low and high in the task for others"
ROLES: dict[str, Role | None] = {"input": None, "output": "output", "inout": "inout"}


@dataclass(frozen=True, kw_only=True)
class DraftedTarget:
    """A target, and the contents of the files that it needs by their path in the project.

    `reasons` has one line on each inferred value. `recorded` are the integers that the observed
    program passed, for a kernel that fails with drawn ones; by config class and argument.
    """

    target: Target
    files: Mapping[str, str | bytes]
    reasons: tuple[str, ...] = ()
    recorded: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)

    def write(self, project: Path) -> None:
        """Write the files into the project. Raises OSError."""
        for name, content in self.files.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_bytes(
                content.encode() if isinstance(content, str) else content)


def infer_parameters(task: Target, overrides: Mapping[str, str]) -> Parameters:
    """Return all parameters in the order they are shown; `overrides` replace inferred ones."""
    of_task = "by the task file"
    known = dict(parameters.make_parameters((
        ("target_op", task.op, of_task),
        ("target_backend", task.backend or task.language.upper(), of_task),
        ("target_lang", task.language, of_task),
        ("target_gpu", "", ""),
        ("edit", task.source, "the task's source"),
        ("format_command", "", ""),
        ("test_command", "", ""),
        ("full_test_command", "", ""),
        *parameters.OF_CAMPAIGN,
        ("python", "", ""),
        ("device", "cpu" if task.language == "c" else "auto", "by the language"))))
    known["target_gpu"] = replace(known["target_gpu"], origin="the device's")
    return parameters.with_given(known, overrides)


def make_manifest(known: Parameters, task: Target, task_file: str, project: str,
                  pool: Mapping[str, Any] = MappingProxyType({}), knobs: str = "") -> Manifest:
    """Return the manifest; `knobs` is a tuning table. Raises InputError for a wrong value."""
    shown = {name: parameter for name, parameter in known.items()
             if name != "edit" or parameter.origin == "given"}
    return parameters.make_manifest(shown, pool, project=project, kernel_source=task.source,
                                    target={"kind": "kernel", "task": task_file,
                                            **({"knobs": knobs} if knobs else {})})


def draft(function: CFunction, source: Path, reference: str, shapes: Mapping[str, str],
          scalars: Mapping[str, str], classes: Sequence[str],
          roles: Mapping[str, str] = MappingProxyType({})) -> Target:
    """Return a task. Raises InputError for what is missing or does not fit.

    A shape is "rows, cols", a scalar "1e-6", a class "tall: rows=1024 cols=64", a role "inout".
    The scalar of a size holds for every class that does not give it.
    """
    config_classes = tuple(map(parse_config_class, classes))
    if unknown := sorted(scalars.keys() - {arg.name for arg in function.args}):
        raise InputError(f"{function.name} has no argument {unknown[0]!r}", where="--scalar",
                         fix=f"its arguments are {', '.join(arg.name for arg in function.args)}")
    sizes = {arg.name: _whole_scalar(arg.name, scalars[arg.name]) for arg in function.args
             if isinstance(arg.value, str) and arg.name in scalars}
    named = {name for each in config_classes for name in each.shape}.union(
        *(names_of(dim) for shape in shapes.values() for dim in parse_dims(shape)
          if isinstance(dim, str)))
    config_classes = tuple(replace(each, shape={**each.shape, **{
        name: size for name, size in sizes.items() if name in named and name not in each.shape}})
        for each in config_classes)
    args = tuple(replace(arg, value=sizes[arg.name]) if arg.name in sizes.keys() - named else
                 _filled(arg, shapes, scalars, roles) for arg in function.args)
    for name, shape in shapes.items():
        check_shape(function, name, shape)
    task = Target(op=function.name.partition("<")[0], language=function.language,
                  source=source.as_posix(), entry=function.name, reference=reference, args=args,
                  launch=function.launch, classes=config_classes,
                  build=(*BUILD_FLAGS.get(function.language, ()), *function.flags)
                  if function.flags else None)
    check(task)
    for config_class in task.classes:
        tensors = task.tensors(config_class)
        if task.launch is not None:
            sizes = {tensor.name: tensor.value for tensor in tensors
                     if isinstance(tensor.value, int)}
            task.launch.sizes(function.constants | config_class.shape | sizes)
    return task


def check_shape(function: CFunction, tensor: str, shape: str) -> None:
    """Raise InputError if a shape names no size or constant of a function that takes sizes."""
    sizes = [arg.name for arg in function.args if isinstance(arg.value, str)]
    for dim in parse_dims(shape):
        names = names_of(dim) if isinstance(dim, str) else set()
        if sizes and (unknown := sorted(names - {*sizes, *function.constants})):
            raise InputError(f"shape of {tensor}: {unknown[0]!r} is no argument of "
                             f"{function.name}",
                             fix=f"write numbers, or expressions of {', '.join(sizes)}")


def can_build(function: CFunction) -> bool:
    """Return whether this machine can build a function; a host function needs a toolkit."""
    return function.is_global or function.language == "c" or bool(
        toolkits.find(function.language))


def explain(task: Target, *, tries: bool = False) -> Iterator[str]:
    """Yield a line on each inferred part of a task, with its reason.

    `tries` tells that the ranges of its integers are yet to be found by running the kernel.
    """
    reasons = {"input": "only read", "output": "written to",
               "inout": "written to, and read before"}
    for arg in task.args:
        shape = "" if arg.shape is None else f" [{', '.join(map(str, arg.shape))}]"
        reason = reasons.get(arg.kind) or ("a size" if arg.value == arg.name else "a scalar")
        if is_undeclared(arg) and not tries:
            reason += f"; {ZERO_ONE}"
        yield f"{arg.name:18} {arg.kind} {arg.dtype}{shape}  ({reason})"
    if task.by_baseline:
        yield "reference          the kernel as it is  (none in Python; each gain is flagged)"
    if task.has_c_reference:
        yield f"reference          {task.reference_function} of the program, every float as a " \
            f"double  ({task.reference_file})"
    if task.build is not None:
        yield f"{'build':18} {' '.join(task.build)}  (what the source needs)"
    if task.launch is not None:
        axes = ("grid", task.launch.grid), ("block", task.launch.block)
        for name, sizes in (*axes, ("shared", (task.launch.shared_bytes,))):
            yield f"{name:18} {', '.join(map(str, sizes))}  (<<<...>>> in the source, or flags)"
        for name, value in task.launch.defaults.items():
            yield f"{name:18} {value}  (where the source does not define it)"


def parse_dims(text: str) -> tuple[int | str, ...]:
    """Parse sizes such as "rows, 2*cols"."""
    dims = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(dim) if dim.isdigit() else dim for dim in dims)


def parse_config_class(text: str) -> ConfigClass:
    """Parse a config class such as "tall: rows=1024 cols=64"; after the colon may be no size."""
    name, colon, rest = text.partition(":")
    shape: dict[str, int] = {}
    for part in rest.replace(",", " ").split():
        key, equals, number = part.partition("=")
        if not (key.isidentifier() and equals and number.isdigit() and int(number)):
            raise InputError(f"cannot read {part!r} in the config class {text!r}",
                             fix="write NAME: rows=1024 cols=64")
        shape[key] = int(number)
    if not name.strip() or not (shape or (colon and not rest.strip())):
        raise InputError(f"cannot read the config class {text!r}",
                         fix="write NAME: rows=1024 cols=64")
    return ConfigClass(name=name.strip(), shape=shape)


def dump_task(task: Target) -> str:
    """Return the task as YAML, without fields that equal their defaults."""
    return yaml_document.dump({
        "kind": task.kind, **_brief(task), "args": [_brief(arg) for arg in task.args],
        "classes": [_brief(config_class) for config_class in task.classes]})


def _filled(arg: Arg, shapes: Mapping[str, str], scalars: Mapping[str, str],
            roles: Mapping[str, str]) -> Arg:
    if arg.shape is not None:
        if not shapes.get(arg.name, "").strip():
            raise InputError(f"the shape of {arg.name} is missing",
                             fix=f"--shape {arg.name}=rows,cols")
        if (role := roles.get(arg.name, arg.kind)) not in ROLES:
            raise InputError(f"cannot read {role!r} as a role of {arg.name}", where="--role",
                             fix=f"one of {', '.join(ROLES)}")
        return replace(arg, shape=parse_dims(shapes[arg.name]), role=ROLES[role])
    if arg.value is None:
        value = yaml_values.scalar(scalars.get(arg.name, ""))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"the value of {arg.name} is missing or not a number",
                             fix=f"--scalar {arg.name}=1e-6")
        return replace(arg, value=value)
    return arg


def _whole_scalar(name: str, text: str) -> int:
    value = yaml_values.scalar(text)
    if type(value) is not int:
        raise InputError(f"the value of {name} is {text!r}, a whole number is needed",
                         where="--scalar", fix=f"--scalar {name}=8")
    return value


def _brief(value: Target | Arg | ConfigClass) -> dict[str, Any]:
    return {field.name: to_builtins(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) != field.default}

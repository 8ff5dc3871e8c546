"""A task file for a C kernel, drafted from its signature and what a person adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from engine.discovery.project.sources import CFunction
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.json_codec import to_builtins
from harness.target import Arg, ConfigClass, Target, check


def open_shapes(function: CFunction) -> list[str]:
    """Return the names of tensors, whose shapes no C signature tells."""
    return [arg.name for arg in function.args if arg.shape is not None]


def open_scalars(function: CFunction) -> list[str]:
    """Return the names of scalars that are no sizes and so need a value."""
    return [arg.name for arg in function.args if arg.shape is None and arg.value is None]


def sizes(function: CFunction) -> list[str]:
    """Return the names of whole-number scalars: the names in which shapes are written."""
    return [arg.name for arg in function.args if isinstance(arg.value, str)]


def draft(function: CFunction, source: Path, reference: str, shapes: Mapping[str, str],
          scalars: Mapping[str, str], classes: Sequence[str]) -> Target:
    """Return a task; raises InputError for what is missing in it or does not fit.

    A shape is "rows, cols", a scalar "1e-6", a class "tall: rows=1024 cols=64".
    """
    given = tuple(_filled(arg, shapes, scalars) for arg in function.args)
    task = Target(op=function.name, language="c", source=source.as_posix(), entry=function.name,
                  reference=reference, args=given, classes=tuple(map(config_class, classes)))
    check(task)
    for one in task.classes:
        task.tensors(one)
    return task


def config_class(text: str) -> ConfigClass:
    """Read a config class from "tall: rows=1024 cols=64"."""
    name, _, rest = text.partition(":")
    shape: dict[str, int] = {}
    for part in rest.replace(",", " ").split():
        key, equals, number = part.partition("=")
        if not (key.isidentifier() and equals and number.isdigit() and int(number)):
            raise InputError(f"cannot read {part!r} in the config class {text!r}",
                             fix="write NAME: rows=1024 cols=64")
        shape[key] = int(number)
    if not name.strip() or not shape:
        raise InputError(f"cannot read the config class {text!r}",
                         fix="write NAME: rows=1024 cols=64")
    return ConfigClass(name=name.strip(), shape=shape)


def dump(task: Target) -> str:
    """Return the task as YAML, without what equals its default."""
    value: dict[str, Any] = {"kind": task.kind}
    for field in fields(Target):
        given = getattr(task, field.name)
        if field.name != "kind" and given != field.default:
            value[field.name] = to_builtins(given)
    value["args"] = [_brief(arg) for arg in task.args]
    value["classes"] = [_brief(one) for one in task.classes]
    return yaml_document.dump(value)


def _filled(arg: Arg, shapes: Mapping[str, str], scalars: Mapping[str, str]) -> Arg:
    if arg.shape is not None:
        if not shapes.get(arg.name, "").strip():
            raise InputError(f"the shape of {arg.name} is missing",
                             fix=f"--shape {arg.name}=rows,cols")
        dims = [part.strip() for part in shapes[arg.name].split(",") if part.strip()]
        return replace(
            arg, shape=tuple(int(dim) if dim.isdigit() else dim for dim in dims))
    if arg.value is None:
        value = yaml_document.scalar(scalars.get(arg.name, ""))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"the value of {arg.name} is missing or no number",
                             fix=f"--scalar {arg.name}=1e-6")
        return replace(arg, value=value)
    return arg


def _brief(value: Arg | ConfigClass) -> dict[str, Any]:
    return {field.name: to_builtins(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) != field.default}

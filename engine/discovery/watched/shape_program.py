"""Writes a program that calls a function with given shapes, for people who have no program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from engine.discovery.project import sources
from engine.discovery.watched.entry_source import EntrySource
from harness.errors import InputError
from harness.formats import yaml_values

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
HIGH = 2
"""Integers are drawn from 0 to below this."""


def write(entry: EntrySource, source: str, shapes: Mapping[str, str], scalars: Mapping[str, str],
          dtypes: Mapping[str, str], classes: Sequence[Mapping[str, int]], line: str, *,
          backward: bool = False) -> str:
    """Return the program's source; it calls the function once for each class.

    A shape is "8192,4096", or "rows,cols" in the names that a class has. `dtypes` are by argument;
    "" is for all others. Raises InputError naming an argument that is missing.
    """
    if entry.owner:
        raise InputError("shapes do not tell how the object is made", where=line,
                         fix="give a program that makes it and calls the method, after --")
    _expect_sizes(shapes, {*scalars}, classes, line)
    names = entry.parameters[entry.hidden:]
    if unknown := [name for name in (*shapes, *scalars) if name not in names]:
        raise InputError(f"the function has no argument {unknown[0]!r}", where=line,
                         fix=f"it has {', '.join(names)}")
    if missing := [name for name in names if name not in (*shapes, *scalars)
                   and name not in entry.defaults]:
        flags = " ".join(f"--shape {name}=ROWS,COLS" for name in missing)
        raise InputError(f"neither a shape nor a value is given for {', '.join(missing)}",
                         where=line, fix=f"add {flags} (--scalar NAME=VALUE for one that is no "
                         "tensor), or give a program that calls the function after --")
    arguments = []
    for name in names:
        if name in shapes:
            dims = [part.strip() for part in shapes[name].split(",") if part.strip()]
            dtype = dtypes.get(name, dtypes.get("", "float32"))
            draw = f"torch.randn(shape, device=device).to(torch.{dtype})" \
                f"{'.requires_grad_()' * backward}" if dtype in FLOATS else \
                f"torch.randint(0, {HIGH}, shape, device=device).to(torch.{dtype})"
            arguments.append((name, f"(lambda shape: {draw})(({''.join(f'{dim}, ' for dim in dims)}"
                                    "))"))
        elif name in scalars:
            value = yaml_values.scalar(scalars[name])
            arguments.append((name, repr(value) if not isinstance(value, str)
                              or not value.isidentifier() or not any(
                                  value in each for each in classes) else value))
    passed = ", ".join(f"{name}={value}" for name, value in arguments)
    calls = [line for each in (classes or [{}]) for line in (
        *(f"{name} = {size}" for name, size in each.items()), f"function({passed})")]
    return "\n".join([
        "import importlib.util, os, sys", "import torch",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        f"sys.path[:0] = [os.getcwd(), os.path.dirname({source!r})]",
        f"spec = importlib.util.spec_from_file_location('kopt_kernel', {source!r})",
        "module = importlib.util.module_from_spec(spec)", "sys.modules['kopt_kernel'] = module",
        "spec.loader.exec_module(module)", f"function = module.{entry.entry}", *calls, ""])


def example(entry: EntrySource, project: Path) -> str:
    """Return a command that likely calls the function: a test of the project that names it."""
    name = entry.entry.split(".")[0]
    for path in sources.project_files(project, sources.MOST_DEEP):
        if path.suffix == ".py" and re.search(r"(^|_)tests?(_|$)", path.stem) and re.search(
                rf"\b{re.escape(name)}\b", text := sources.read_source(path)):
            runner = "python -m pytest -q" if "def test_" in text else "python"
            return f"{runner} {path.relative_to(project).as_posix()}"
    return "python test_it.py"


def _expect_sizes(shapes: Mapping[str, str], scalars: Set[str],
                  classes: Sequence[Mapping[str, int]], line: str) -> None:
    """Raise InputError for a name in a shape that has no value in some config class."""
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", " ".join(shapes.values())))
    known = scalars | (set(classes[0]).intersection(*classes) if classes else set())
    if unknown := [name for name in names if name not in known]:
        example = " ".join(f"{name}=64" for name in names if name not in scalars)
        is_one, listed = len(unknown) == 1, ", ".join(unknown)
        raise InputError(f"the size {listed} has no value" if is_one else
                         f"the sizes {listed} have no value", where=line,
                         fix=f"use --class, such as --class 'small: {example}'")

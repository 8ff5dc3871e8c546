"""Checks a reference that a person names, or that the project's reference.py has."""

from __future__ import annotations

import ast
import keyword
import os
from pathlib import Path

from engine.discovery.project import sources
from engine.routing.source_language import top_level
from harness.errors import InputError
from harness.tasks import target


def in_python(project: Path, function: sources.CFunction) -> bool:
    """Return whether the project's reference.py has a function of the kernel's name."""
    entry = function.name.partition("<")[0]
    return f"def {entry}(" in sources.read_source(project / "reference.py")


def checked(text: str, project: Path, function: sources.CFunction) -> str:
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

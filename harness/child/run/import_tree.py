"""Imports a kernel's file from its tree, also where two trees share a process."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from typing import Any

_current_root = [""]
"""The tree whose modules are importable at present; see `turn_to`."""
_parked: dict[str, tuple[dict[str, Any], list[str]]] = {}
"""By tree, its modules and its part of sys.path while another tree is current."""


def import_file(path: str, root: str) -> Any:
    """Import the kernel's file with its folder, its package's and the root on sys.path.

    A file with relative imports is imported as the module of its package, as the project does.
    """
    turn_to(root)
    package = package_of(path, root)
    if package is not None:
        above, name = package
        sys.path[:0] = list(dict.fromkeys([above, root]))
        return importlib.import_module(name)
    above = folder = os.path.dirname(path)
    while above != root and os.path.exists(os.path.join(above, "__init__.py")):
        above = os.path.dirname(above)  # such as src
    sys.path[:0] = list(dict.fromkeys([folder, above, root]))
    return module_of("kopt_kernel", path)


def package_of(path: str, root: str) -> tuple[str, str] | None:
    """Return the folder above a file's package, and the dotted name of the file's module.

    None if the file has no relative imports, or lies in `root` itself.
    """
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    levels = [node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    folder, steps = os.path.dirname(path), [os.path.splitext(os.path.basename(path))[0]]
    while max(levels, default=0) and folder != root and (
            len(steps) <= max(levels) or os.path.exists(os.path.join(folder, "__init__.py"))):
        folder, step = os.path.split(folder)
        steps.insert(0, step)
    return (folder, ".".join(steps)) if len(steps) > 1 else None


def module_of(name: str, path: str) -> Any:
    """Import a file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {os.path.basename(path)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if error.path and os.path.realpath(error.path) == os.path.realpath(path):
            raise ImportError(f"the file replaces {os.path.basename(path)}, "
                              "so it cannot import from it") from None
        raise
    return module


def turn_to(root: str) -> None:
    """Switch sys.modules and sys.path to those of one tree.

    So each of two kernels that share a process always imports modules of its own tree.
    """
    current = _current_root[-1]
    if root == current:
        return
    modules = {name: module for name, module in sys.modules.items()
               if _below(getattr(module, "__file__", None), current)}
    paths = [path for path in sys.path if _below(path, current)]
    _parked[current] = modules, paths
    for name in modules:
        del sys.modules[name]
    _current_root[:] = [root]
    modules, others = _parked.pop(root, ({}, []))
    sys.modules.update(modules)
    sys.path[:] = [*others, *(path for path in sys.path if path not in paths)]


def _below(path: str | None, root: str) -> bool:
    return bool(root and path) and f"{path}{os.sep}".startswith(root + os.sep)

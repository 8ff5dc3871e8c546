"""A file with `Model`, `get_inputs` and `get_init_inputs`, imported with chosen sizes.

Sizes are whole numbers, or tuples of them, that the file assigns to names at its top level, or
the literal numbers in its functions for inputs. Standard library and torch.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from types import ModuleType
from typing import Any

import torch

Size = int | tuple[int, ...]
LITERALS = (int, float, bool, str, type(None))
LEAST = 8
"""The smallest number that `name_numbers` takes for a size."""


class ProblemSource:
    """The parsed file; `open` runs it anew."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.tree = ast.parse(file.read(), path)
        self.tree.body = [part for node in self.tree.body for part in _separate(node)]
        self.numbered: frozenset[str] = frozenset()
        sys.path.insert(0, os.path.dirname(path))

    def name_numbers(self) -> bool:
        """Make sizes of the literal numbers in the functions for inputs: 2048 is `size_2048`.

        Returns whether there are any.
        """
        numbers = _Numbers()
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
                numbers.visit(node)
        self.numbered = frozenset(map(_size, numbers.replaced))
        self.tree.body += ast.parse("\n".join(f"{_size(value)} = {value}"
                                              for value in sorted(numbers.replaced))).body
        return bool(numbers.replaced)

    def open(self, sizes: dict[str, Size]) -> Problem:
        """Run the file with other values of its sizes. Raises what the file raises."""
        tree = ast.parse(ast.unparse(self.tree), self.path)
        for node in tree.body:
            if isinstance(node, ast.Assign) and (name := _assigned(node)) in sizes:
                node.value = ast.parse(repr(sizes[name]), mode="eval").body
        module = ModuleType("kopt_problem")
        module.__file__ = self.path
        sys.modules["kopt_problem"] = module
        exec(compile(ast.fix_missing_locations(tree), self.path, "exec"), vars(module))
        return Problem(module, self._sizes(module))

    def _sizes(self, module: ModuleType) -> dict[str, Size]:
        sizes: dict[str, Size] = {}
        for node in self.tree.body:
            name = _assigned(node)
            value = getattr(module, name, None)
            if type(value) is int:
                sizes[name] = value
            elif isinstance(value, tuple | list) and value and all(type(v) is int for v in value):
                sizes[name] = tuple(value)
        return sizes


class _Numbers(ast.NodeTransformer):
    """Replaces large whole numbers by names; `replaced` are the numbers."""

    def __init__(self) -> None:
        self.replaced: set[int] = set()

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int or node.value < LEAST:
            return node
        self.replaced.add(node.value)
        return ast.Name(_size(node.value), ast.Load())


def _size(value: int) -> str:
    return f"size_{value}"


class Problem:
    """The file's functions, run with one choice of sizes."""

    def __init__(self, module: ModuleType, sizes: dict[str, Size]) -> None:
        self.module, self.sizes = module, sizes
        self._randint_bounds: list[tuple[torch.Tensor, tuple[int, int]]] = []

    def inputs(self, device: str) -> list[Any]:
        """Return what `get_inputs` returns, made on a device such as "meta"."""
        with torch.device("meta"):
            torch.empty(0)  # torch lists the functions that make tensors at its first use
        original = torch.randint

        def randint(*args: Any, **kwargs: Any) -> Any:
            drawn = original(*args, **kwargs)
            bounds = [value for value in args if isinstance(value, int)][:2]
            low = kwargs.get("low", bounds[0] if len(bounds) > 1 else 0)
            high = kwargs.get("high", bounds[-1] if bounds else 2)
            self._randint_bounds.append((drawn, (int(low), int(high))))
            return drawn

        torch.randint = randint
        try:
            with torch.device(device):
                value = self.module.get_inputs()
        finally:
            torch.randint = original
        return list(value) if isinstance(value, list | tuple) else [value]

    def bounds(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Return the bounds with which `torch.randint` drew a tensor; None if it did not."""
        return next((bounds for drawn, bounds in self._randint_bounds if drawn is tensor), None)

    def init(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments of the model."""
        value = self.module.get_init_inputs()
        if isinstance(value, dict):
            return [], value
        if len(value) == 2 and isinstance(value[0], list | tuple) and isinstance(value[1], dict):
            return list(value[0]), value[1]
        return list(value), {}

    def model(self, device: str) -> Any:
        args, kwargs = self.init()
        with torch.device(device):
            return self.module.Model(*args, **kwargs)


class Unsupported(ValueError):
    """The module cannot be a task; the message says why."""


class Layout:
    """The tensors of `get_inputs` by name, and the expressions of a call's arguments."""

    def __init__(self, problem: Problem, inputs: list[Any]) -> None:
        parameters = [name for name, each in inspect.signature(
            problem.module.Model.forward).parameters.items() if each.kind in (
                each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)][1:]
        self.tensors: dict[str, torch.Tensor] = {}
        names = [*parameters, *(f"input{number}" for number in range(len(inputs)))]
        self.call = [self._expression(name, value)
                     for name, value in zip(names, inputs, strict=False)]

    def _expression(self, name: str, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            self.tensors[name] = value
            return f"as_bool({name})" if value.dtype == torch.bool else name
        if isinstance(value, list | tuple):
            parts = [self._expression(f"{name}_{index}", part) for index, part in enumerate(value)]
            return f"[{', '.join(parts)}]" if isinstance(value, list) else \
                f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if isinstance(value, LITERALS):
            return repr(value)
        raise Unsupported(f"get_inputs gives {name} a {type(value).__name__}")


def leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a returned value, a dict's sorted by key; numbers become tensors."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, bool | int | float):
        return [torch.tensor(value)]
    if value is None:
        return []
    raise Unsupported(f"forward returns a {type(value).__name__}")


def _separate(node: ast.stmt) -> list[ast.stmt]:
    """Return an assignment of several values, as `rows, width = 64, 512`, as one of each."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) \
                if len(names) == len(values) and not any(
                    isinstance(part, ast.Name | ast.Starred) for each in values
                    for part in ast.walk(each)):
            return [ast.copy_location(ast.Assign([name], value), node)
                    for name, value in zip(names, values, strict=True)]
        case ast.AnnAssign(target=ast.Name() as name, value=ast.expr() as value):
            return [ast.copy_location(ast.Assign([name], value), node)]
    return [node]


def _assigned(node: ast.stmt) -> str:
    """Return the name to which a statement assigns constants, "" if it does not.

    A value that is computed from other names is no constant: it follows them.
    """
    if isinstance(node, ast.Assign) and len(node.targets) == 1 \
            and isinstance(node.targets[0], ast.Name) \
            and not any(isinstance(part, ast.Name) for part in ast.walk(node.value)):
        return node.targets[0].id
    return ""


def in_mode(model: torch.nn.Module, training: bool) -> torch.nn.Module:
    """Return a model as its constructor leaves it, or in eval mode.

    A constructor may put single layers in eval mode, so that train() would change what they do.
    """
    return model if training else model.eval()

"""The tensors of a call of a module and of its answer. Standard library and torch."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .problem_source import Problem

LITERALS = (int, float, bool, str, type(None))


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
    """Return the tensors of a returned value, a dict's by its keys; numbers become tensors."""
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

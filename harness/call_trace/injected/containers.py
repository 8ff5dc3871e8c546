"""Takes containers of tensors among a call's arguments apart, so that each part is an argument."""

from __future__ import annotations

from .observed import is_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_DEEP, MOST_PARTS = 3, 64


def has_parts(value: Any, depth: int = 1) -> bool:
    """Return whether a value is a tuple or list with a tensor in it, or a dict with text keys."""
    if depth > MOST_DEEP or type(value) not in (tuple, list, dict) or len(value) > MOST_PARTS:
        return False
    if type(value) is dict:
        return bool(value) and all(isinstance(key, str) for key in value)
    return any(is_tensor(part) or has_parts(part, depth + 1) for part in value)


def expression(value: Any, name: str, leaf: Callable[[str, Any], str],
               known: dict[str, str] | None = None) -> str:
    """Return Python that makes a container of its parts; `leaf` gives the source of each part.

    `leaf` gets a proposed name, such as `data_0`, and the part. `known` are better names.
    """
    if not has_parts(value):
        return leaf(name, value)

    def of(key: Any, part: Any) -> str:
        proposed = f"{name}_{key}"
        return expression(part, (known or {}).get(proposed, proposed), leaf, known)

    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {of(key, part)}' for key, part in value.items())}}}"
    parts = "".join(f"{of(index, part)}, " for index, part in enumerate(value))
    return f"[{parts}]" if type(value) is list else f"({parts})"


def take_apart(names: list[str], values: list[Any], parts: dict[str, list[str]]) -> dict[str, str]:
    """Replace containers of tensors by their parts; return the source that makes each again.

    `parts` are the names that the function's source gives to the parts of an argument.
    """
    packed: dict[str, str] = {}
    for name, value in list(zip(names, values, strict=True)):
        if not has_parts(value):
            continue
        at = names.index(name)
        del names[at], values[at]
        known = parts.get(name, [])
        known = known if type(value) is not dict and len(known) == len(value) else []
        own = {f"{name}_{index}": part for index, part in enumerate(known)}

        def leaf(proposed: str, part: Any) -> str:
            nonlocal at
            free_name = "".join(letter if letter.isalnum() else "_" for letter in proposed)
            while free_name in names:
                free_name += "_"
            names.insert(at, free_name)
            values.insert(at, part)
            at += 1
            return free_name

        packed[name] = expression(value, name, leaf, own)
    return packed


def of_arguments(value: Any, argument: Callable[[Any], str]) -> str:
    """Return a caller's container as Python over the call's arguments, "" if it has other tensors.

    `argument` returns the name of the argument that a tensor is, "" if it is none.
    """
    unknown = []

    def leaf(_: str, part: Any) -> str:
        if is_tensor(part):
            name = argument(part)
            unknown.extend([] if name else [part])
            return name
        if part is not None and not isinstance(part, (bool, int, float, str)):
            unknown.append(part)
        return repr(part)

    text = expression(value, "", leaf)
    return "" if unknown else text

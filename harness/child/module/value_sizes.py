"""Shapes of modules that choose by values, on torch's `meta` device. Standard library and torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.overrides import TorchFunctionMode

SWITCH = "meta_nonzero_assume_all_nonzero"


@contextlib.contextmanager
def sizes_of_values() -> Iterator[None]:
    """On `meta`, let `torch.where` and `nonzero` find all values nonzero, if torch can."""
    try:
        from torch.fx.experimental import _config
    except ImportError:
        yield
        return
    before = getattr(_config, SWITCH, None)
    if before is not None:
        setattr(_config, SWITCH, True)
    try:
        yield
    finally:
        if before is not None:
            setattr(_config, SWITCH, before)


class ChoiceWatch(TorchFunctionMode):
    """Notes whether a module chooses by values, as a mixture of experts does."""

    chooses = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        self.chooses |= name in ("topk", "nonzero") or (name == "where" and len(args) == 1)
        return function(*args, **(kwargs or {}))

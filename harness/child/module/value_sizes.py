"""Shapes of modules that choose by values, on torch's `meta` device. Standard library and torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def sizes_of_values() -> Iterator[None]:
    """Let `torch.where` and `nonzero` find as many values as there can be, where torch can so."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch.fx.experimental import _config

        before = _config.meta_nonzero_assume_all_nonzero
        _config.meta_nonzero_assume_all_nonzero = True
        try:
            yield
        finally:
            _config.meta_nonzero_assume_all_nonzero = before
        return
    yield


class ChoiceWatch(TorchFunctionMode):
    """Notes whether a module chooses by values, as a mixture of experts does."""

    chooses = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        self.chooses |= name in ("topk", "nonzero") or (name == "where" and len(args) == 1)
        return function(*args, **(kwargs or {}))

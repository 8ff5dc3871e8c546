"""Runs modules and their rewrites in Triton's interpreter; prints the largest difference of each.

`python run_rewrites.py FOLDER...`: a folder has base.py, with the inputs, and candidate.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def difference(folder: Path) -> float:
    base, candidate = load(folder / "base.py"), load(folder / "candidate.py")
    torch.manual_seed(0)
    plain, rewritten = base.Model(), candidate.ModelNew()
    rewritten.load_state_dict(plain.state_dict())
    given = base.get_inputs()
    with torch.no_grad():
        expected, result = plain(*given), rewritten(*given)
    if isinstance(expected, dict):
        assert list(expected) == list(result)
        expected, result = tuple(expected.values()), tuple(result.values())
    pairs = list(zip(*(each if isinstance(each, tuple) else (each,) for each in (expected, result)),
                     strict=True))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(rewritten.state_dict()[name], value)
    return max(map(relative_difference, *zip(*pairs, strict=True)))


def relative_difference(expected: Any, result: Any) -> float:
    assert result.shape == expected.shape and result.dtype == expected.dtype
    expected, result = expected.float(), result.float()
    return float((result - expected).abs().max() / expected.abs().max())


print(json.dumps([difference(Path(folder)) for folder in sys.argv[1:]]))

"""A small data set in the format of flashinfer-bench: sums of gathered rows, scaled."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "gather_sum_d64"
REFERENCE = """import torch

def run(table, offsets, rows, scale):
    assert table.shape[1] == 64
    out = []
    for begin, end in zip(offsets.tolist(), offsets.tolist()[1:]):
        out.append(table[rows[begin:end].long()].float().sum(0) * scale)
    return [torch.stack(out).to(table.dtype)]
"""
IN_PLACE = """import torch

def run(table, offsets, rows, scale, out):
    lengths = offsets.diff().long()
    owners = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
    sums = torch.zeros(out.shape).index_add_(0, owners, table[rows.long()].float())
    out.copy_(sums * scale)
"""
LINES = ((2, 5), (3, 40), (3, 40), (4, 90))
"""Bags and gathered rows of each workload."""


def definition(**fields: Any) -> dict[str, Any]:
    return {
        "name": NAME, "op_type": "gather", "description": "Sums of gathered rows.",
        "tags": ["status:draft"], "constraints": ["bounds == bags + 1", "picked == offsets[-1]"],
        "axes": {"bags": {"type": "var"}, "bounds": {"type": "var"}, "picked": {"type": "var"},
                 "height": {"type": "const", "value": 32}, "width": {"type": "const", "value": 64}},
        "inputs": {"table": {"shape": ["height", "width"], "dtype": "float32"},
                   "offsets": {"shape": ["bounds"], "dtype": "int32"},
                   "rows": {"shape": ["picked"], "dtype": "int32"},
                   "scale": {"shape": None, "dtype": "float32"}},
        "outputs": {"out": {"shape": ["bags", "width"], "dtype": "float32"}},
        "reference": REFERENCE, **fields}


def solution(**spec: Any) -> dict[str, Any]:
    return {"name": "gather_sum_torch", "definition": NAME, "author": "a test",
            "spec": {"language": "python", "target_hardware": ["cpu"], "dependencies": ["torch"],
                     "entry_point": "src/main.py::run", **spec},
            "sources": [{"path": "src/main.py", "content": IN_PLACE}]}


def write(folder: Path, lines: Sequence[tuple[int, int]] = LINES, **fields: Any) -> Path:
    """Write the data set, with a workload for each of `lines`; return the definition's path."""
    path = folder / "definitions" / "gather" / f"{NAME}.json"
    (folder / "workloads" / "gather").mkdir(parents=True)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(definition(**fields)))
    traces = []
    for number, (bags, picked) in enumerate(lines):
        offsets = [picked * bag // bags for bag in range(bags)] + [picked]
        tensors = {"offsets": offsets, "rows": [7 * row % 32 for row in range(picked)]}
        (folder / f"w{number}.safetensors").write_bytes(safetensors(tensors))
        stored = {name: {"type": "safetensors", "path": f"w{number}.safetensors",
                         "tensor_key": name} for name in tensors}
        traces.append({"definition": NAME, "solution": None, "evaluation": None, "workload": {
            "uuid": f"uuid-{number}", "axes": {"bags": bags, "bounds": bags + 1, "picked": picked},
            "inputs": {"table": {"type": "random"}, **stored,
                       "scale": {"type": "scalar", "value": 0.5}}}})
    (folder / "workloads" / "gather" / f"{NAME}.jsonl").write_text(
        "\n".join(map(json.dumps, traces)))
    return path


def safetensors(tensors: dict[str, list[int]]) -> bytes:
    """Return a safetensors file with int32 vectors."""
    header, content = {}, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}i", *values)
        header[name] = {"dtype": "I32", "shape": [len(values)],
                        "data_offsets": [len(content), len(content) + len(raw)]}
        content += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content

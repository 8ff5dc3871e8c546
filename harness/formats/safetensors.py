"""Write files in the safetensors format."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

CODES = {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
         "bool": "BOOL"}
"""The format's names of integer dtypes and bool."""


def pack(tensors: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """Return a file's bytes; `tensors` gives by name the format's dtype name, the shape, the bytes.
    """
    header: dict[str, object] = {}
    content = b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(content), len(content) + len(values)]}
        content += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def integers(dtype: str, values: Sequence[int]) -> bytes:
    """Return whole numbers as the bytes of a dtype."""
    letter = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}.get(dtype, "B")
    return struct.pack(f"<{len(values)}{letter}", *values)

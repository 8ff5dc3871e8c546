"""JSON schemas of exports to flashinfer-bench, derived from its documentation."""

from __future__ import annotations

from typing import Any

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})},
            "required": list(required), "additionalProperties": False}


SOLUTION = _object({
    "name": TEXT, "definition": TEXT, "author": TEXT, "description": TEXT,
    "spec": _object({
        "language": {"enum": ["python", "triton", "cpp", "cuda", "tilelang"]},
        "target_hardware": {"type": "array", "items": TEXT, "minItems": 1}, "entry_point": TEXT,
        "dependencies": {"type": "array", "items": TEXT},
        "destination_passing_style": {"type": "boolean"}, "binding": {"type": "null"}}),
    "sources": {"type": "array", "minItems": 1,
                "items": _object({"path": TEXT, "content": TEXT})}})
TRACE = _object({
    "definition": TEXT, "solution": TEXT,
    "workload": _object({"uuid": TEXT, "axes": {"type": "object"}, "inputs": {
        "type": "object", "additionalProperties": _object(
            {"type": {"enum": ["random", "scalar", "safetensors"]}},
            {"value": NUMBER, "path": TEXT, "tensor_key": TEXT})}}),
    "evaluation": _object({
        "status": {"const": "PASSED"}, "timestamp": TEXT, "log": TEXT,
        "environment": _object({"hardware": TEXT, "libs": {"type": "object"}}),
        "correctness": _object({"max_relative_error": NUMBER, "max_absolute_error": NUMBER}),
        "performance": _object({"latency_ms": NUMBER, "reference_latency_ms": NUMBER,
                                "speedup_factor": NUMBER})})})

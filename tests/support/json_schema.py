"""Checks values against JSON schemas, as far as msgspec writes them."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "null": (type(None),),
    "number": (int, float), "boolean": (bool,)}
KNOWN = {"$ref", "$defs", "anyOf", "type", "enum", "const", "properties", "required", "items",
         "prefixItems", "additionalProperties", "title", "description", "default", "minItems",
         "maxItems"}


def faults(value: object, schema: dict[str, Any], defs: dict[str, Any] | None = None,
           at: str = "$") -> list[str]:
    """Return what a value breaks, with its place; raises for a keyword that is not known here."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    defs = schema.get("$defs", defs or {})
    if "$ref" in schema:
        return faults(value, defs[schema["$ref"].rpartition("/")[2]], defs, at)
    if "anyOf" in schema:
        tried = [faults(value, each, defs, at) for each in schema["anyOf"]]
        return [] if not all(tried) else tried[0]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        allowed = tuple(kind for name in names for kind in TYPES[name])
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            return [f"{at}: {value!r} is not of type {schema['type']}"]
    found = []
    if isinstance(value, dict):
        found += [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, inner in value.items():
            if name in known:
                found += faults(inner, known[name], defs, f"{at}.{name}")
            elif other is False:
                found.append(f"{at}: unknown {name}")
            elif isinstance(other, dict):
                found += faults(inner, other, defs, f"{at}.{name}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, inner in enumerate(value):
            found += faults(inner, schema["items"], defs, f"{at}[{number}]")
    return found

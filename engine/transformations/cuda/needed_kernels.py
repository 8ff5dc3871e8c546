"""Hides the device functions of a CUDA or HIP source that its entry does not need.

A change of these would not be measured.
"""

from __future__ import annotations

import re

from engine.transformations.cuda.device_code import ParsedCuda
from harness.errors import InputError

_MARK = re.compile(r"\b__(?:global|device)__\b")
_HIDDEN = {"__global__": "__hidglb__", "__device__": "__hiddev__"}
"""Marks of the same length, which no transformation takes for device code."""


def shown(source: str, entry: str) -> str:
    """Return the source with other marks on the functions that `entry` does not reach by names.

    An entry of the host reaches all that any function of the host names.
    """
    try:
        cuda = ParsedCuda(source)
    except InputError:
        return source
    bodies = {cuda.declared_name(declarator)[0]: function for function in cuda.functions
              if (declarator := function.child_by_field_name("declarator"))}
    needed = {entry.partition("<")[0]}
    if not needed & bodies.keys():
        host = source
        for function in reversed(list(bodies.values())):
            host = host[:function.start_byte] + host[function.end_byte:]
        needed = set(re.findall(r"\w+", host))
    reached: set[str] = set()
    while rest := needed & bodies.keys() - reached:
        reached |= rest
        needed |= {name for each in rest for name in re.findall(r"\w+", cuda.text(bodies[each]))}
    for name in bodies.keys() - reached:
        begin = max(source.rfind(mark, 0, bodies[name].start_byte) for mark in ";}") + 1
        body = bodies[name].child_by_field_name("body")
        assert body is not None
        head = _MARK.sub(lambda mark: _HIDDEN[mark[0]], source[begin:body.start_byte])
        source = source[:begin] + head + source[body.start_byte:]
    return source


def restored(changed: str) -> str:
    """Return a changed form of a shown source with its own marks."""
    for mark, hidden in _HIDDEN.items():
        changed = changed.replace(hidden, mark)
    return changed

"""A Python kernel with knobs, and its split into variants."""

from __future__ import annotations

import msgspec

from engine.split import specialise
from engine.split.class_preferences import ClassGroup
from engine.split.languages.python_language import Python
from tests.support.searches.split_case import start_of

PY = Python()
KERNEL = '''\
"""The sum of some numbers, tile by tile."""

import math

TILE = 32  # kopt: knob TILE in [4, 32, 256] numbers at once
START = 16  # kopt: knob START in [16, 64]
# kopt: require TILE <= 8 * START or TILE == 256
MASK, LESS = TILE - 1, TILE // 2
taken = []


def part(x, TILE):
    return math.fsum(x[:TILE])


def tile_of(x):
    return TILE if len(x) else MASK


def keep(tile):
    taken.append(tile)


def total(x, context, *, scale=1.0):
    """The one entry point."""
    keep(TILE)
    return scale * math.fsum(part(x[i:], tile_of(x)) for i in range(0, context, TILE))
'''


def divided(source: str, *groups: ClassGroup, language: Python = PY, **names: str) -> str:
    now = start_of(source, language.knobs)
    complete = [msgspec.structs.replace(group, config={**now, **group.config}) for group in groups]
    named = names or {column: column for group in groups for column in group.points[0]}
    return specialise.split(source, complete, named, start=now, language=language)

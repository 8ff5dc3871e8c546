"""Which config class takes which kernel, as the sources of kept commits say it themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from engine.history import Past
from engine.split import c_dispatch
from engine.split.c_dispatch import Block
from harness.errors import Refused

MARK = b"kopt split:"
OTHERWISE = "otherwise"


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a split: on what condition it is taken, and what is told of it."""

    kernel: str
    condition: str
    told: str = ""

    @property
    def old(self) -> bool:
        return self.condition == OTHERWISE


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels behind one entry point; the last is the old one, which takes all the rest."""

    entry: str
    kernels: tuple[Variant, ...]

    @property
    def conditions(self) -> str:
        return "; ".join(one.condition for one in self.kernels if not one.old)


Splits = Mapping[str, tuple[Split, ...]]
"""By the kept commit that brought them, or changed them."""


def of(past: Past, kernel: Callable[[str], Mapping[str, bytes]]) -> Splits:
    """Return the splits that keeps brought; `kernel` reads a commit's files, text by name."""
    found: dict[str, tuple[Split, ...]] = {}
    keeps = [keep.commit for keep in past.keeps]
    known = {commit: _of_commit(kernel(commit)) for commit in [past.base, *keeps] if keeps}
    for number, commit in enumerate(keeps):
        before = next((one for one in reversed(keeps[:number]) if past.stood(one, commit)),
                      past.base)
        if known[commit] and known[commit] != known[before]:
            found[commit] = known[commit]
    return found


def _of_commit(files: Mapping[str, bytes]) -> tuple[Split, ...]:
    return tuple(split for data in files.values() if MARK in data for split in _of_source(data))


def _of_source(data: bytes) -> Iterator[Split]:
    try:
        _, blocks = c_dispatch.read(data.decode(errors="replace"))
    except Refused:  # somebody has changed it since: its own words say what it is now
        return
    yield from map(_split, blocks)


def _split(block: Block) -> Split:
    return Split(entry=block.entry, kernels=(
        *(Variant(kernel=one.kernel, condition=str(one.condition), told=one.told)
          for one in block.branches), Variant(kernel=block.default, condition=OTHERWISE)))

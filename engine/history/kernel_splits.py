"""Which config class takes which kernel, as the sources of kept commits say it themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from engine.history import served
from engine.history.history import CampaignHistory
from engine.split.languages.detect import language_by_name
from engine.split.languages.dispatch import DispatchBlock
from harness.errors import Refused

MARK = b"kopt split:"
OTHERWISE = "otherwise"


class SplitKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a split: on what condition it is taken, and what is told of it."""

    kernel: str
    condition: str
    told: str = ""

    @property
    def old(self) -> bool:
        return self.condition == OTHERWISE


class KernelSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels behind one entry point; the last is the old one, which takes all the rest."""

    entry: str
    kernels: tuple[SplitKernel, ...]

    @property
    def conditions(self) -> str:
        return "; ".join(one.condition for one in self.kernels if not one.old)

    @property
    def told(self) -> str:
        """Its conditions, each with the config classes that it was made for."""
        return "; ".join(f"{one.condition} ({one.told})" if one.told else one.condition
                         for one in self.kernels if not one.old)


Splits = Mapping[str, tuple[KernelSplit, ...]]
"""By the kept commit that brought them, or changed them."""


def of(past: CampaignHistory, kernel: Callable[[str], Mapping[str, bytes]]) -> Splits:
    """Return the splits that keeps brought; `kernel` reads a commit's files, text by name."""
    found: dict[str, tuple[KernelSplit, ...]] = {}
    keeps = [keep.commit for keep in past.keeps]
    classes = _classes(past)
    known = {commit: _of_commit(kernel(commit), classes)
             for commit in [past.base, *keeps] if keeps}
    for number, commit in enumerate(keeps):
        before = next((one for one in reversed(keeps[:number]) if past.stood(one, commit)),
                      past.base)
        if known[commit] and known[commit] != known[before]:
            found[commit] = known[commit]
    return found


def _classes(past: CampaignHistory) -> list[str]:
    """Return the config classes that the baseline was measured on."""
    first = next((row for row in past.verdicts.values() if row.purpose == "baseline"), None)
    return [] if first is None else [row.config_class for row in first.decode().rows]


def _of_commit(files: Mapping[str, bytes], classes: Sequence[str]) -> tuple[KernelSplit, ...]:
    return tuple(split for name, data in files.items() if MARK in data
                 for split in _of_source(name, data, classes))


def _of_source(name: str, data: bytes, classes: Sequence[str]) -> Iterator[KernelSplit]:
    try:
        _, blocks = language_by_name(name).read(data.decode(errors="replace"))
    except Refused:  # somebody has changed it since: its own words say what it is now
        return
    yield from (_split(block, classes) for block in blocks)


def _split(block: DispatchBlock, classes: Sequence[str]) -> KernelSplit:
    *new, old = served.by_kernel(block, classes)
    return KernelSplit(entry=block.entry, kernels=(
        *(SplitKernel(kernel=one.kernel, condition=str(one.condition), told=told)
          for one, told in zip(block.branches, new, strict=True)),
        SplitKernel(kernel=block.default, condition=OTHERWISE, told=old)))

"""Read from the sources of kept commits which config classes each kernel of a split serves."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.split.languages.detect import language_by_name
from engine.split.languages.language import OTHERWISE, DispatchBlock
from harness.errors import Refused
from harness.formats.quantities import listed

MARK = b"kopt split:"
MOST = 8
"""Most classes that are listed for one kernel."""
NONE = "no measured class"
_ABOUT = re.compile(r"^\(.*?\), (?=(?:no )?class\b)")
_MORE = re.compile(r" and \d+ more$")
_VALUE = re.compile(r"(?<![^\s,])(\w+)=(-?\d+)(?![^\s,])")


class SplitKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a split, its condition, and the config classes that it serves, in words."""

    kernel: str
    condition: str
    serves: str = ""

    @property
    def is_default(self) -> bool:
        return self.condition == OTHERWISE


class KernelSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels behind one entry point; the last, the default, is the kernel before the split."""

    entry: str
    kernels: tuple[SplitKernel, ...]

    @property
    def conditions(self) -> str:
        return "; ".join(kernel.condition for kernel in self.kernels if not kernel.is_default)

    @property
    def summary(self) -> str:
        """Its conditions, each with the config classes that it serves."""
        return "; ".join(f"{kernel.condition} ({kernel.serves})" if kernel.serves else
                         kernel.condition for kernel in self.kernels if not kernel.is_default)


Splits = Mapping[str, tuple[KernelSplit, ...]]
"""Splits by the kept commit that added or changed them."""


def of(past: CampaignHistory, kernel: Callable[[str], Mapping[str, bytes]]) -> Splits:
    """Return the splits that keeps added or changed; `kernel` returns a commit's files by name."""
    changed: dict[str, tuple[KernelSplit, ...]] = {}
    keeps = [keep.commit for keep in past.keeps]
    classes = [] if past.baseline is None else \
        [row.config_class for row in verdict_of(past.baseline).rows]
    splits = {commit: _of_commit(kernel(commit), classes)
              for commit in [past.base, *keeps] if keeps}
    for number, commit in enumerate(keeps):
        before = next((earlier for earlier in reversed(keeps[:number])
                       if past.was_in_place(earlier, commit)), past.base)
        if splits[commit] and splits[commit] != splits[before]:
            changed[commit] = splits[commit]
    return changed


def _of_commit(files: Mapping[str, bytes], classes: Sequence[str]) -> tuple[KernelSplit, ...]:
    splits: list[KernelSplit] = []
    for name, data in files.items():
        if MARK in data:
            with contextlib.suppress(Refused):  # edited by hand since: kopt cannot read it any more
                _, blocks = language_by_name(name).read(data.decode(errors="replace"))
                splits += [_split(block, classes) for block in blocks]
    return tuple(splits)


def _split(block: DispatchBlock, classes: Sequence[str]) -> KernelSplit:
    *new, default = classes_by_kernel(block, classes)
    return KernelSplit(entry=block.entry, kernels=(
        *(SplitKernel(kernel=branch.kernel, condition=str(branch.condition), serves=served)
          for branch, served in zip(block.branches, new, strict=True)),
        SplitKernel(kernel=block.default, condition=OTHERWISE, serves=default)))


def classes_by_kernel(block: DispatchBlock, classes: Sequence[str]) -> list[str]:
    """Return the classes that each kernel serves, in the dispatch's order, the default last.

    A class goes to the first kernel whose condition holds. Where the names of the classes hold the
    values of the dispatch's columns (`rows=1 cols=8`), its conditions are evaluated. Otherwise
    each branch serves the classes that its note in the source names, and the default the rest; the
    default's text is "" if the notes are incomplete.
    """
    points = {name: {column: int(value) for column, value in _VALUE.findall(name)}
              for name in classes}
    columns = {column for branch in block.branches for column in branch.condition.columns}
    if points and all(columns <= point.keys() for point in points.values()):
        return _dispatched(block, points)
    noted = [_noted(branch.note) for branch in block.branches]
    seen: set[str] = set()
    served = []
    for names, branch in zip(noted, block.branches, strict=True):
        served.append(_listed([name for name in names if name not in seen])
                      + "".join(_MORE.findall(branch.note)))
        seen.update(names)
    is_complete = seen <= set(classes) and \
        not any(_MORE.search(branch.note) for branch in block.branches)
    return [*served, _listed([c for c in classes if c not in seen]) if is_complete and seen else ""]


def _dispatched(block: DispatchBlock, points: Mapping[str, Mapping[str, int]]) -> list[str]:
    served: list[list[str]] = [[] for _ in (*block.branches, block)]
    for name, point in points.items():
        number = next((number for number, branch in enumerate(block.branches)
                       if branch.condition.holds(point)), len(block.branches))
        served[number].append(name)
    return [_listed(names) for names in served]


def _noted(note: str) -> list[str]:
    """Return the classes that a branch's note names, without the rest of the note."""
    text = _MORE.sub("", _ABOUT.sub("", note))
    if not text.startswith("class "):
        return [] if text in ("", "no class") else [text]
    return text.removeprefix("class ").split(", class ")


def _listed(names: Sequence[str]) -> str:
    return listed(names, MOST) if names else NONE

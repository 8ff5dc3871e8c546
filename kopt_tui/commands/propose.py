"""`kopt propose`: print a kernel's knobs and current values, without a campaign."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import msgspec

from harness.formats.quantities import counted
from harness.target import ConfigClass
from harness.trial_fields import LatencyKind, Value
from kopt_tui.cli.output import print_json, print_table
from kopt_tui.cli.parser import add_json, add_manifest

if TYPE_CHECKING:  # for start-up time
    from engine.run.one_shot import OneShot


class KnobSpace(msgspec.Struct, frozen=True, kw_only=True):
    """One knob in the form that agents read."""

    type: str
    choices: tuple[Value, ...]
    default: Value
    desc: str
    line: int
    reserved: bool
    """The knob is documented but must not be changed."""


class SearchProposal(msgspec.Struct, frozen=True, kw_only=True):
    """The knobs that an agent may change, with their current values.

    A valid configuration fulfils every expression of `requires`; `size` counts all configurations,
    valid or not. `latency_kind` is the kind of latency that the device gives, null where nothing
    can be timed. A change of a file in `frozen` is refused.
    """

    op: str
    language: str
    source: str
    entry: str
    device: str
    incumbent: dict[str, Value]
    incumbent_tree: str
    search_space: dict[str, KnobSpace]
    requires: tuple[str, ...]
    size: int
    latency_kind: LatencyKind | None
    frozen: tuple[str, ...]
    classes: tuple[ConfigClass, ...]
    edit_surface: str


def add(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.run.one_shot import OneShot  # here and below: start-up time

    with OneShot(args.manifest) as one_shot:
        proposal = _proposal(one_shot)
    if args.json:
        print_json(proposal)
        return 0
    print(f"{proposal.op}: {proposal.entry} in {proposal.source} ({proposal.language}) "
          f"on {proposal.device} ({proposal.latency_kind or 'not timed here'}); "
          f"{counted(proposal.size, 'configuration')}")
    print_table(("knob", "now", "choices", "line", "what it is"),
         ((name, str(knob.default), ", ".join(map(str, knob.choices)), str(knob.line),
           f"reserved: {knob.desc}" if knob.reserved else knob.desc)
          for name, knob in proposal.search_space.items()))
    for requirement in proposal.requires:
        print(f"require {requirement}")
    print(proposal.edit_surface)
    return 0


def _proposal(one_shot: OneShot) -> SearchProposal:
    from harness.search.trials.trials import latency_kind

    knobs = one_shot.source.knobs
    return SearchProposal(
        op=one_shot.target.op, language=one_shot.target.language, source=one_shot.target.source,
        entry=one_shot.target.entry, device=one_shot.judged.device.name,
        incumbent_tree=one_shot.judged.base_tree,
        incumbent={knob.name: knob.value for knob in knobs},
        search_space={knob.name: KnobSpace(type=type(knob.value).__name__, choices=knob.choices,
                                           default=knob.value, desc=knob.note, line=knob.line,
                                           reserved=knob.reserved)
                      for knob in knobs},
        requires=tuple(requirement.text for requirement in one_shot.source.requirements),
        size=math.prod(len(knob.choices) for knob in knobs if not knob.reserved),
        latency_kind=latency_kind(one_shot.judged.device, one_shot.target.language),
        frozen=one_shot.judged.frozen, classes=one_shot.target.classes,
        edit_surface=f"any part of {one_shot.target.source}; the reference, the task and the "
                     "benchmark are frozen")

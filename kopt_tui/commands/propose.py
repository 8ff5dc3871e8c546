"""`kopt propose`: a target's incumbent and the search space that its source declares."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.search.space.knobs import Value
from harness.target import ConfigClass
from harness.verdict import LatencyKind
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.parser import Commands, add_json
from kopt_tui.cli.text_table import print_table

if TYPE_CHECKING:
    from engine.run.one_shot import OneShot


class KnobSpace(msgspec.Struct, frozen=True, kw_only=True):
    """One knob as an agent reads it."""

    type: str
    choices: tuple[Value, ...]
    default: Value
    desc: str
    line: int
    reserved: bool
    """It is documented, and stays as it is: nothing may move it."""


class SearchProposal(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may move, and from where.

    `size` is the number of configurations, those included that do not meet `requires`, expressions
    over the knobs that a legal one fulfils; `latency_kind` is what a latency from the device would
    be: null where nothing can be timed. A change of a file that `frozen` names is refused.
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


def add(sub: Commands) -> None:
    parser = sub.add_parser("propose")
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.run.one_shot import OneShot

    with OneShot(args.manifest) as direct:
        proposal = _proposal(direct)
    if args.json:
        print_json(proposal)
        return 0
    print(f"{proposal.op}: {proposal.entry} in {proposal.source} ({proposal.language}) "
          f"on {proposal.device} ({proposal.latency_kind or 'not timed here'}); "
          f"{proposal.size} configurations")
    print_table(("knob", "now", "choices", "line", "what it is"),
         ((name, str(knob.default), ", ".join(map(str, knob.choices)), str(knob.line),
           f"reserved: {knob.desc}" if knob.reserved else knob.desc)
          for name, knob in proposal.search_space.items()))
    for requirement in proposal.requires:
        print(f"require {requirement}")
    print(proposal.edit_surface)
    return 0


def _proposal(direct: OneShot) -> SearchProposal:
    from harness.search.trials.trials import latency_kind

    knobs = direct.source.knobs
    return SearchProposal(
        op=direct.target.op, language=direct.target.language, source=direct.target.source,
        entry=direct.target.entry, device=direct.judged.device.name,
        incumbent_tree=direct.judged.base_tree,
        incumbent={knob.name: knob.value for knob in knobs},
        search_space={knob.name: KnobSpace(type=type(knob.value).__name__, choices=knob.choices,
                                           default=knob.value, desc=knob.note, line=knob.line,
                                           reserved=knob.reserved)
                      for knob in knobs},
        requires=tuple(one.text for one in direct.source.requirements),
        size=math.prod(len(knob.choices) for knob in knobs if not knob.reserved),
        latency_kind=latency_kind(direct.judged.device, direct.target.language),
        frozen=direct.judged.frozen, classes=direct.target.classes,
        edit_surface=f"any part of {direct.target.source}; the reference, the task and the "
                     "benchmark are frozen")

"""`kopt propose`: print a target's knobs and current values, without a campaign."""

from __future__ import annotations

import argparse

from engine.run import space_document
from engine.run.space_document import Proposal
from harness.formats.quantities import counted
from kopt_tui.cli.gpu_gate import open_target
from kopt_tui.cli.output import print_json, print_table
from kopt_tui.cli.parser import add_json, add_manifest
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot import phrases


def add(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser)
    add_json(parser, Proposal)


def run(args: argparse.Namespace) -> int:
    with open_target(args.manifest) as one_shot:
        proposed = space_document.of(one_shot)
    if args.json:
        print_json(proposed)
        return 0
    place = f"{proposed.entry} in {proposed.source}" if proposed.entry else proposed.source
    language = f" ({proposed.language})" if proposed.language else ""
    print(f"{proposed.op}: {place}{language} on {proposed.device} "
          f"({proposed.objective.latency_kind or 'not timed here'}); "
          f"{counted(proposed.size, 'configuration')}")
    print_table(("knob", "now", "choices", "line", "description"), (
        (name, str(knob.default), ", ".join(map(str, knob.choices)), knob.line,
         f"reserved: {knob.desc}" if knob.reserved else knob.desc)
        for name, knob in proposed.search_space.items()))
    for constraint in proposed.constraints:
        print(f"require {constraint}")
    print_text(f"candidates may change {proposed.edit_surface}")
    print_text(phrases.clean(proposed.routing))
    return 0

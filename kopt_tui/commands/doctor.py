"""`kopt doctor`: check that this machine has what kopt needs."""

from __future__ import annotations

import argparse

import msgspec

from engine.doctor import machine, surroundings, tools
from engine.doctor.tools import MachineCheck
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_json, workspace_of
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean


class MachineChecks(msgspec.Struct, frozen=True, kw_only=True):
    """All checks; `ok` if nothing that kopt needs is missing."""

    ok: bool
    checks: tuple[MachineCheck, ...]


SIGNS = {"ok": "✓", "note": "·", "warn": "!", "missing": "✗"}


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser, MachineChecks)


def run(args: argparse.Namespace) -> int:
    checks = [*tools.checks(), *machine.checks(workspace_of(args)), *surroundings.checks()]
    missing = [check.name for check in checks if check.status == "missing"]
    if args.json:
        print_json(MachineChecks(ok=not missing, checks=tuple(checks)))
        return 3 if missing else 0
    width = max(len(check.name) for check in checks)
    for check in checks:
        print_text(f"{SIGNS[check.status]} {check.name:{width}}  {clean(check.found)}",
                   indent=width + 4)
        if check.fix:
            print_text(f"  {'':{width}}  → {clean(check.fix)}", indent=width + 6)
    print(f"missing requirements: {', '.join(missing)}" if missing else "no requirement is missing")
    return 3 if missing else 0

"""`kopt report`: a campaign's report as Markdown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.report import markdown
from kopt_tui.commands.choose import campaign, journal
from kopt_tui.commands.jsonout import emit
from kopt_tui.commands.parser import Commands, add_campaign, add_json


def add(sub: Commands) -> None:
    parser = sub.add_parser("report")
    add_campaign(parser)
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, default=None,
                        help="write it there (default: standard output)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        chosen = campaign(reader, args.campaign)
        report = markdown(reader, chosen)
        if args.json:
            emit({"campaign": chosen, "decisions": reader.decisions(chosen.id),
                  "bottlenecks": reader.bottlenecks(chosen.id), "markdown": report})
            return 0
    if args.output is None:
        sys.stdout.write(report)
    else:
        args.output.write_text(report, encoding="utf-8")
        print(f"wrote {args.output}", file=sys.stderr)
    return 0

"""`kopt report`: print a campaign's report as Markdown, or as one HTML file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.history import campaign_view
from engine.records.report.campaign_report import html, markdown
from harness.errors import EnvironmentFault
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_campaign, add_json


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, default=None,
                        help="write the report to this file (default: standard output)")
    parser.add_argument("--html", action="store_true",
                        help="one HTML file with charts; implied by --output FILE.html")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        chosen = choose_campaign(reader, args.campaign)
        view = campaign_view.read_with_manifest(reader, chosen)
        if args.json:
            print_json({"campaign": chosen, "decisions": reader.decisions(chosen.id),
                  "bottlenecks": reader.bottlenecks(chosen.id),
                  "markdown": markdown(view)})
            return 0
        page = args.html or (args.output is not None and args.output.suffix == ".html")
        report = html(view) if page else markdown(view)
    if args.output is None:
        sys.stdout.write(report)
        return 0
    try:
        args.output.write_text(report, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"cannot write the report: {error.strerror}",
                               where=str(args.output), fix="name another FILE") from None
    print(f"wrote {args.output}", file=sys.stderr)
    return 0

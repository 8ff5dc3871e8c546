"""`kopt report`: print a campaign's report, write its records again, or export its result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from engine.history import campaign_view
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Campaign, DecisionRow
from engine.records.exports.fast_p import FastPTable
from engine.records.report.campaign_report import html, markdown
from harness.errors import EnvironmentFault, InputError, Refused, os_fault
from kopt_tui.cli import bench_files
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_campaign, add_json


class PrintedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's report, as Markdown too."""

    campaign: Campaign
    decisions: tuple[DecisionRow, ...]
    bottlenecks: tuple[Bottleneck, ...]
    markdown: str


FORMATS = ("kernelbench", "flashinfer", *bench_files.TABLES)


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, default=None,
                        help="write the report to this file (default: standard output)")
    parser.add_argument("--html", action="store_true",
                        help="one HTML file with charts; implied by --output FILE.html")
    parser.add_argument("--records", action="store_true",
                        help="write all the campaign's records again from the journal, with the "
                        "same bytes, instead of printing the report")
    parser.add_argument("--format", choices=FORMATS, default=None,
                        help="kernelbench: solution files with ModelNew, and fast_p; flashinfer: "
                        "a Solution and its Traces (--output is a folder); triton-config: the "
                        "kept knobs of each config class; vllm: of each batch size (--output is a "
                        "file)")
    parser.add_argument("--each", action="store_true",
                        help="with --format kernelbench: CAMPAIGN is a folder for which kopt new "
                        "--each wrote manifests; one table of all its problems")
    add_json(parser, PrintedReport, FastPTable)


def run(args: argparse.Namespace) -> int:
    if args.each and args.format is None:
        raise InputError("--each is for --format kernelbench", where="--each")
    with open_journal(args) as reader:
        if args.format is not None:
            return bench_files.write(args, reader)
        chosen = choose_campaign(reader, args.campaign)
        if args.records:
            return _write_records(reader, chosen)
        view = campaign_view.read_with_manifest(reader, chosen)
        if args.json:
            print_json(PrintedReport(
                campaign=chosen, decisions=tuple(reader.decisions(chosen.id)),
                bottlenecks=tuple(reader.bottlenecks(chosen.id)), markdown=markdown(view)))
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


def _write_records(reader: Reader, chosen: Campaign) -> int:
    """Write the records of a campaign that no engine runs, and the tips that it learned."""
    from engine.campaign.setup import open_campaign
    from engine.planning import tips
    from engine.records.writer import Records

    if is_live(reader, chosen.id):
        raise Refused(f"an engine runs {chosen.id} and writes its records itself",
                      fix="wait for its end, or kopt stop ends it")
    setup = open_campaign(reader.path.parent, chosen.id, to_read=True)
    try:
        Records(setup).write_all(reader)
        tips.restore(reader, setup.workspace, chosen.id, setup.manifest)
    except OSError as error:
        raise os_fault(error) from None
    print(f"wrote the records in {chosen.path}", file=sys.stderr)
    return 0

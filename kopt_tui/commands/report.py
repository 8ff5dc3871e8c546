"""`kopt report`: print a campaign's report, write its records again, or export its result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from engine.history import campaign_view
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Campaign
from engine.records.exports import bench_export, fast_p, kept_result, tuning_export
from engine.records.exports.fast_p import FastPTable, ProblemResult
from engine.records.report.campaign_report import html, markdown
from harness.errors import EnvironmentFault, InputError, KoptError, Refused, os_fault
from harness.formats import quantities
from kopt_tui.cli import batch_runs
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, only_answers, open_journal
from kopt_tui.cli.output import print_json, print_markdown, print_table
from kopt_tui.cli.parser import add_campaign, add_json
from kopt_tui.snapshot import phrases


class PrintedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's report, as Markdown too."""

    campaign: Campaign
    decisions: tuple[DecisionRow, ...]
    bottlenecks: tuple[Bottleneck, ...]
    markdown: str


TABLES = {"triton-config": tuning_export.by_class, "vllm": tuning_export.by_batch_size}
FORMATS = ("kernelbench", "flashinfer", *TABLES)
SCORES = "fast_p.json"


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, default=None,
                        help="write the report, or a table of --format, to this file (default: "
                        "standard output); other files of --format to this folder (default: one "
                        "named after the campaign)")
    parser.add_argument("--html", action="store_true",
                        help="one HTML file with charts; implied by --output FILE.html")
    parser.add_argument("--records", action="store_true",
                        help="rewrite all the campaign's records from the journal, byte for byte, "
                        "instead of printing the report")
    parser.add_argument("--format", choices=FORMATS, default=None,
                        help="kernelbench: solution files with ModelNew, and fast_p; flashinfer: "
                        "a Solution and its Traces; triton-config: a table of the kept knobs of "
                        "each config class; vllm: one of each batch size")
    parser.add_argument("--each", action="store_true",
                        help="with --format kernelbench: CAMPAIGN is a folder for which kopt new "
                        "--each wrote manifests; one table of all its problems")
    add_json(parser, PrintedReport, FastPTable)


def run(args: argparse.Namespace) -> int:
    if args.each and args.format is None:
        raise InputError("--each needs --format kernelbench", where="--each")
    with open_journal(args) as reader:
        if args.format is not None:
            return _export(args, reader)
        chosen = choose_campaign(reader, args.campaign)
        if args.records:
            return _write_records(reader, chosen)
        view = msgspec.structs.replace(
            campaign_view.read_with_manifest(reader, chosen), engine_gone=phrases.without_engine(
                chosen, live=is_live(reader, chosen.id),
                answers_only=only_answers(reader, chosen.id)))
        if args.json:
            print_json(PrintedReport(
                campaign=chosen, decisions=tuple(reader.decisions(chosen.id)),
                bottlenecks=tuple(reader.bottlenecks(chosen.id)), markdown=markdown(view)))
            return 0
        is_html = args.html or (args.output is not None and args.output.suffix == ".html")
        report = html(view) if is_html else markdown(view)
    if args.output is None:
        if is_html:
            sys.stdout.write(report)
        else:
            print_markdown(report)
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


def _export(args: argparse.Namespace, reader: Reader) -> int:
    """Write the files of --format to --output; for kernelbench, also print its tables."""
    if args.format != "kernelbench":
        if args.each:
            raise InputError("--each needs --format kernelbench", fix="name one campaign")
        _export_campaign(args, reader)
        return 0
    files: dict[str, bytes] = {}
    problems = []
    for name, campaign in _campaigns(args, reader):
        try:
            problems.append(_problem(reader, name, campaign, files))
        except KoptError as error:
            if not args.each:
                raise
            problems.append(ProblemResult(problem=name, why=str(error)))
    table = fast_p.of(problems)
    files[SCORES] = _pretty_json(table, indent=2)
    _write(args.output or Path(f"{Path(args.campaign or 'kernelbench').name}-kernelbench"), files)
    if args.json:
        print_json(table)
        return 0
    print_table(("problem", "campaign", "speedup over eager", ""), [
        (each.problem, each.campaign,
         quantities.speedup(each.speedup), phrases.clean(each.why))
        for each in problems])
    print_table(("fast_p", "share of problems"), [
        (f"fast_{float(p):g}", f"{share:.2f}") for p, share in table.fast_p.items()])
    return 0


def _export_campaign(args: argparse.Namespace, reader: Reader) -> None:
    """Write a campaign's tuning table, or its Solution and Traces."""
    chosen = choose_campaign(reader, args.campaign)
    view = campaign_view.read_with_manifest(reader, chosen)
    result = kept_result.of(view)
    if args.format not in TABLES:
        _write(args.output or Path(f"{chosen.id}-flashinfer"),
               bench_export.files(result, view.ended_at))
        return
    text = _pretty_json(TABLES[args.format](result, view.manifest), indent=4)
    if args.output is None:
        sys.stdout.write(text.decode())
    else:
        _write(args.output.parent, {args.output.name: text})


def _pretty_json(value: object, *, indent: int) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=indent) + b"\n"


def _campaigns(args: argparse.Namespace,
               reader: Reader) -> Iterator[tuple[str, Campaign | None]]:
    if not args.each:
        chosen = choose_campaign(reader, args.campaign)
        yield chosen.id, chosen
        return
    for manifest in batch_runs.manifests(Path(args.campaign or ".")):
        yield manifest.parent.name, batch_runs.campaign_of(reader, manifest)


def _problem(reader: Reader, name: str, campaign: Campaign | None,
             files: dict[str, bytes]) -> ProblemResult:
    """Return a problem's result; add its solution to the files."""
    if campaign is None:
        return ProblemResult(problem=name, why="no campaign ran on it")
    result = kept_result.of(campaign_view.read_with_manifest(reader, campaign))
    problem = fast_p.problem_result(result)
    if problem.speedup is not None:
        path, text = fast_p.solution_file(result)
        files[path] = text.encode()
    return problem


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            print(f"wrote {folder / name}", file=sys.stderr)
    except OSError as error:
        raise EnvironmentFault(f"cannot write the files: {error.strerror}", where=str(folder),
                               fix="name another folder with --output") from None

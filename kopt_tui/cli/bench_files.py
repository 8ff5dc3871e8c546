"""`kopt report --format`: writes results in the form of a benchmark suite or a tuning table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from engine.history import campaign_view
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.records.exports import bench_export, fast_p, kept_result, tuning_export
from engine.records.exports.fast_p import ProblemResult
from engine.records.exports.kept_result import KeptResult
from harness.errors import EnvironmentFault, InputError, KoptError
from kopt_tui.cli import batch_runs
from kopt_tui.cli.campaign_choice import choose_campaign
from kopt_tui.cli.output import print_json, print_table
from kopt_tui.snapshot.phrases import clean

TABLES = {"triton-config": tuning_export.by_class, "vllm": tuning_export.by_batch_size}
SCORES = "fast_p.json"


def write(args: argparse.Namespace, reader: Reader) -> int:
    """Write the files of --format into the folder --output and print what they say."""
    if args.format != "kernelbench":
        if args.each:
            raise InputError("--each is for --format kernelbench", fix="name one campaign")
        chosen = choose_campaign(reader, args.campaign)
        view = campaign_view.read_with_manifest(reader, chosen)
        if args.format in TABLES:
            configs = TABLES[args.format](kept_result.of(view), view.manifest)
            text = msgspec.json.format(msgspec.json.encode(configs), indent=4) + b"\n"
            if args.output is None:
                sys.stdout.write(text.decode())
            else:
                _write(args.output.parent, {args.output.name: text})
            return 0
        folder = args.output or Path(f"{chosen.id}-flashinfer")
        _write(folder, bench_export.files(kept_result.of(view), view.ended_at))
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
    files[SCORES] = msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"
    _write(args.output or Path(f"{Path(args.campaign or 'kernelbench').name}-kernelbench"), files)
    if args.json:
        print_json(table)
        return 0
    print_table(("problem", "campaign", "speedup over eager", ""), [
        (each.problem, each.campaign,
         "" if each.speedup is None else f"{each.speedup:.2f}x", clean(each.why))
        for each in problems])
    print_table(("fast_p", "share of problems"), [
        (f"fast_{float(p):g}", f"{share:.2f}") for p, share in table.fast_p.items()])
    return 0


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
    result: KeptResult = kept_result.of(campaign_view.read_with_manifest(reader, campaign))
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

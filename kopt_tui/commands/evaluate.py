"""`kopt evaluate`: judge one candidate against the project's own code, without a campaign."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.routing import rewrite_routes
from engine.run.one_shot import OneShot, OneShotCandidate
from engine.verify import reference_forms, reference_lines
from engine.verify.harness_client import HarnessFault
from harness.errors import InputError
from harness.verdict import Verdict, rejected
from kopt_tui.cli.gpu_gate import Gate, card_name, measure, open_target
from kopt_tui.cli.output import exit_code, print_json, print_verdict
from kopt_tui.cli.parser import add_json, add_manifest, add_predict
from kopt_tui.snapshot.phrases import clean

ALPHA = 0.001


def add(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--patch", metavar="FILE", help="a unified diff; - for standard input")
    which.add_argument("--config", metavar="JSON", help='knobs to set, such as {"TILE": 32}')
    which.add_argument("--candidate", metavar="FILE",
                       help="a file that replaces the kernel's source, such as one with "
                       "ModelNew; - for standard input")
    which.add_argument("--ref", metavar="REF", help="a commit or branch of the project")
    parser.add_argument("--base", metavar="REF", default="",
                        help="the incumbent, a commit of the project (default: its files as they "
                        "are now, and HEAD for --ref); without another flag, the files as they "
                        "are now are judged against it")
    parser.add_argument("--alpha", metavar="P", type=float, default=ALPHA,
                        help="the probability of calling an equal candidate faster "
                        f"(default {ALPHA:g})")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_const", const="quick", dest="effort",
                        default="normal", help="measure few pairs, for a first impression")
    effort.add_argument("--thorough", action="store_const", const="thorough", dest="effort",
                        help="measure more pairs, and count gains of 0.5 %% or more")
    parser.add_argument("--references", action="store_true",
                        help="for a PyTorch module: also measure torch.compile and libraries, and "
                        "compare the candidate with them and with eager PyTorch (needs a verdict "
                        "for each; does not affect the result)")
    add_predict(parser)
    add_json(parser, Verdict)


def run(args: argparse.Namespace) -> int:
    if not 0 < args.alpha <= 0.2:
        raise InputError("--alpha must be above 0 and at most 0.2")
    candidate = OneShotCandidate(
        patch=_read(args.patch), config=read_config(args.config), ref=args.ref,
        source=_read(args.candidate))
    base = args.base or ("HEAD" if args.ref is not None else "")
    with open_target(args.manifest, base=base) as one_shot:
        card = card_name(args.predict, one_shot.language)
        request = one_shot.request(candidate, alpha=args.alpha, effort=args.effort)
        verdict = measure(request, Gate(one_shot, quiet=args.json), predict=card, quiet=args.json)
        if args.references:
            verdict = _with_references(verdict, one_shot, args)
        verdict = replace(verdict, notes=(*one_shot.notes, *verdict.notes))
    if args.json:
        print_json(verdict)
    else:
        print_verdict(verdict)
    return exit_code(verdict)


def _with_references(verdict: Verdict, one_shot: OneShot, args: argparse.Namespace) -> Verdict:
    """Return a verdict on a module, compared with eager PyTorch, torch.compile and libraries."""
    target = one_shot.judged.target
    if not target.is_module:
        raise InputError("--references: the target is not a PyTorch module that kopt new wrote")
    if verdict.latency_us is None:
        return verdict
    judged, measured = one_shot.judged, dict[str, Verdict]()
    base_source = one_shot.repo.read(judged.base_tree, target.source)
    for form in reference_forms.forms(base_source, judged.device.kind, lambda name:
                                      rewrite_routes.is_installed(name, judged.manifest.python)):
        request = one_shot.request(OneShotCandidate(source=form.source(base_source)),
                                   alpha=args.alpha, effort="quick")
        if not isinstance(request, Verdict):  # the audit would reject its new dependencies
            request = replace(request, settings=replace(request.settings, static_audit=False))
        try:
            measured[form.key] = measure(request, Gate(one_shot, quiet=args.json), predict="",
                                         quiet=args.json)
        except HarnessFault as fault:
            measured[form.key] = rejected(fault.what)
    eager = {row.config_class: row.incumbent_us for row in verdict.rows if row.incumbent_us}
    return reference_lines.with_lines(verdict, reference_lines.of_verdicts(measured, eager))


def read_config(text: str | None) -> dict[str, object] | None:
    """Read --config; raises InputError unless it is an object. Its values are checked later."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, object])
    except UnicodeError:
        what = "is not UTF-8 text"
    except msgspec.ValidationError:
        what = "is not a JSON object of names and values"
    except (ValueError, RecursionError) as error:
        what = f"is not JSON: {_place(str(error))}"
    raise InputError(f"--config: {clean(text, 80)!r} {what}",
                     fix="""write for example --config '{"TILE": 32}'""")


def _place(error: str) -> str:
    """Return msgspec's message about malformed JSON, with the place counted from 1."""
    what, _, byte = error.removeprefix("JSON is malformed: ").rstrip(")").partition(" (byte ")
    return f"{what} at character {int(byte) + 1}" if byte.isdigit() else what


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=path) from None

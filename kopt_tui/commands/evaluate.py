"""`kopt evaluate`: judge one candidate against the project's own code, without a campaign."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.errors import InputError
from harness.requests import Progress
from harness.verdict import COMPILED, FLOOR, INCUMBENT_FLOOR, Finding, Verdict
from kopt_tui.cli.json_output import emit
from kopt_tui.cli.parser import Commands, add_json, add_predict
from kopt_tui.cli.text_table import show
from kopt_tui.snapshot import phrases

ALPHA = 0.001


def add(sub: Commands) -> None:
    parser = sub.add_parser("evaluate")
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--patch", metavar="FILE", help="a unified diff; - for standard input")
    which.add_argument("--config", metavar="JSON", help='knobs to set, such as {"TILE": 32}')
    which.add_argument("--ref", metavar="REF", help="a commit or branch of the project")
    parser.add_argument("--base", metavar="REF", default="HEAD",
                        help="the incumbent, a commit of the project (default HEAD)")
    parser.add_argument("--alpha", metavar="P", type=float, default=ALPHA,
                        help=f"error rate of calling it faster (default {ALPHA:g})")
    add_predict(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.run.one_shot import OneShot, OneShotCandidate
    from engine.verify import harness_client
    from kopt_tui.cli.gpu_gate import Gate

    if not 0 < args.alpha <= 0.2:
        raise InputError("--alpha must lie above 0 and at most at 0.2")
    trial = OneShotCandidate(
        patch=_patch(args.patch), config=read_config(args.config), ref=args.ref
    )
    with OneShot(args.manifest, base=args.base) as direct:
        card = card_name(args.predict, direct.language)
        request = direct.request(trial, alpha=args.alpha)
        if isinstance(request, Verdict):
            verdict = request
        else:
            with Gate(direct, quiet=args.json).card("verdict") as device:
                request = replace(request, device=device.id, settings=replace(
                    request.settings, predict=card))
                verdict = harness_client.evaluate(request, progress=progress(quiet=args.json))
        verdict = replace(verdict, notes=(*direct.notes, *beside(verdict), *verdict.notes))
    if args.json:
        emit(verdict)
    else:
        tell(verdict)
    return answer(verdict)


def answer(verdict: Verdict) -> int:
    """Return the exit code: 1 for what is invalid, wrong, or rejected for what the audit found."""
    return 0 if verdict.valid and verdict.correct and not _rejects(verdict) else 1


def beside(verdict: Verdict) -> list[str]:
    """Return what is to be said of who was on the card from the start."""
    from engine.verify import gate

    stranger = gate.void_reason(verdict)
    return [f"{stranger}: judge again when it is gone"] if stranger else \
        list(filter(None, [gate.company(verdict)]))


def tell(verdict: Verdict) -> None:
    """Print a verdict for a person."""
    print(phrases.clean(_headline(verdict)))
    show(("class", "correct", "outcome", "latency us", "incumbent us", "change", "of roofline",
          "pairs", "note"),
         ((row.config_class, "yes" if row.correct else "no", phrases.signed(row.outcome),
           _number(row.latency_us), _number(row.incumbent_us),
           "" if row.log_ratio is None else f"{math.expm1(row.log_ratio):+.1%}",
           "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%",
           str(row.pairs) if row.pairs else "", row.note) for row in verdict.rows))
    for finding in verdict.audit:
        print(phrases.clean(f"! {finding.severity}: {finding.detail}"))
    for note in verdict.notes:
        print(phrases.clean(f"- {note}"))
    for fact in verdict.evidence:
        if fact.kind == COMPILED:
            print(phrases.clean(f"- {fact.kind}: {fact.detail}"))


def _headline(verdict: Verdict) -> str:
    if not verdict.valid:
        return f"✗ invalid: {verdict.rejected_reason}"
    if not verdict.correct:
        return "✗ incorrect" + (f": {verdict.rejected_reason}" if verdict.rejected_reason else "")
    if rejects := _rejects(verdict):
        floors = [f"{row.floor_us:.3g} us (class {row.config_class})" for row in verdict.rows
                  if row.floor_us is not None and row.latency_us is None]
        if floors and all(one.rule == FLOOR for one in rejects):
            return "✗ correct, but latency withheld: below the physical floor of " \
                + ", ".join(floors)
        return f"✗ correct, but rejected: {rejects[0].detail}"
    if verdict.latency_kind == "predicted":
        return f"✓ correct, not measured; {verdict.latency_us:.4g} us predicted"
    if verdict.speedup is None:
        odd = next((one.detail for one in verdict.audit if one.rule == INCUMBENT_FLOOR), "")
        return f"✓ correct, not compared: {odd}" if odd else "✓ correct, not measured"
    low, high = verdict.speedup_low or 0.0, verdict.speedup_high or math.inf
    return (f"✓ correct, {verdict.speedup:.3f}x [{low:.3f}, {high:.3f}] against the incumbent, "
            f"{verdict.latency_us:.4g} us ({verdict.latency_kind}) on {verdict.device}")


def _rejects(verdict: Verdict) -> list[Finding]:
    """Return the findings for which `engine.judge.judge` rejects what is right."""
    return [one for one in verdict.audit if one.severity == "reject"]


def progress(*, quiet: bool) -> Callable[[Progress], None]:
    """Return a callback that tells on a terminal's stderr what is going on."""
    if quiet or not sys.stderr.isatty():
        return lambda line: None
    return lambda line: print(f"\r\x1b[K{line.stage} {phrases.clean(line.detail)}", end="",
                              file=sys.stderr, flush=True)


def card_name(predict: str, language: str) -> str:
    """Return the name that the harness has for the card of --predict, "" for none.

    Raises InputError for a card that is not known, and for a target that is no Triton kernel.
    """
    from harness.roofline.predictor import card_for

    card = card_for(predict, language)
    return "" if card is None else card.name


def read_config(text: str | None) -> dict[str, object] | None:
    """Read --config; raises InputError for anything but an object: its values are judged later."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, object])
    except (ValueError, RecursionError) as error:
        what = "is no UTF-8 text" if isinstance(error, UnicodeError) else str(error)
        raise InputError(f"--config: {what}", fix='an object, such as {"TILE": 32}') from None


def _patch(path: str | None) -> bytes | None:
    if path is None:
        return None
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the patch: {error.strerror}", where=path) from None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"

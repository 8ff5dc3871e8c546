"""`kopt show`: everything about a campaign or a candidate."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from engine.history import history
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, VerdictRow
from engine.records import class_history
from harness.errors import InputError
from kopt_tui.cli.campaign_choice import campaign, journal
from kopt_tui.cli.json_output import body, emit
from kopt_tui.cli.parser import Commands, add_json
from kopt_tui.cli.text_table import Cell, facts, show
from kopt_tui.cli.verdict_text import class_rows, said
from kopt_tui.commands.status import best
from kopt_tui.snapshot import phrases


def add(sub: Commands) -> None:
    parser = sub.add_parser("show")
    parser.add_argument("name", metavar="CAMPAIGN|CANDIDATE", nargs="?", default=None,
                        help="a name or the start of one; by default the newest campaign")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        candidate = _candidate(reader, args.name)
        if candidate is not None:
            _show_candidate(reader, candidate, as_json=args.json)
        else:
            _show_campaign(reader, campaign(reader, args.name), as_json=args.json)
    return 0


def _candidate(reader: Reader, name: str | None) -> Candidate | None:
    """Return the candidate that a name means, None when it means a campaign."""
    if name is None or any(one.id.startswith(name) for one in reader.campaigns()):
        return None
    try:
        return reader.candidate(name)
    except InputError as error:
        if "ambiguous" in error.what or not reader.campaigns():
            raise
        raise InputError(f"no campaign and no candidate {name!r}",
                         where=str(reader.path.parent), fix="kopt status lists campaigns, "
                         "kopt show CAMPAIGN its candidates") from None


def _show_campaign(reader: Reader, one: Campaign, *, as_json: bool) -> None:
    rounds, slots = reader.rounds(one.id), reader.slots(one.id, one.round)
    candidates, limits = reader.candidates(one.id), reader.bottlenecks(one.id)
    controls = reader.controls(one.id, open_only=True)
    past = history.read(reader, one.id)
    marks = class_history.by_class(past)
    if as_json:
        emit({"campaign": one, "rounds": rounds, "slots": slots, "candidates": candidates,
              "bottlenecks": limits, "controls": controls, "classes": marks})
        return
    facts([("campaign", one.id), ("target", f"{one.op} in {one.lang or one.backend}"),
           ("state", f"{phrases.signed(one.state)} {one.outcome or one.phase}".strip()),
           ("best", best(one)), ("device", one.device or one.gpu), ("project", one.project),
           ("folder", one.path), ("base", one.base_commit[:12]), ("best at", one.best_commit[:12]),
           ("round", phrases.rounds(one.round, one.rounds_max)),
           ("started", phrases.stamp(one.created_at)), ("last", phrases.stamp(one.updated_at))])
    _section("rounds", ("round", "scope", "outcome", "best", "summary"),
             ((one.n, one.scope, phrases.signed(one.outcome) if one.outcome else "running",
               phrases.ratio(one.best_speedup) if one.best_speedup else "", one.summary)
              for one in rounds), right="round best")
    _section("classes", class_history.HEAD, ((
        mark.round, mark.commit[:12] + (" (rolled back)" if mark.commit in past.undone else ""),
        *class_history.cells(mark)) for mark in marks), right="round time")
    _section("slots", ("slot", "kind", "backend", "stage", "hypothesis"),
             ((s.slot, s.kind, s.backend, f"{s.stage} {s.detail}".strip(), s.hypothesis)
              for s in slots))
    _section("bottlenecks", ("id", "where", "limiter", "value", "advice"),
             ((b.id, f"{b.kernel} {b.config_class}".strip(), b.limiter,
               "" if b.value is None else f"{b.metric} {b.value:.4g}", b.advice) for b in limits))
    _section("candidates", ("candidate", "round", "slot", "state", "hypothesis", "reason"),
             ((c.id[:12], c.round, c.slot, phrases.signed(c.state), c.hypothesis, c.reason)
              for c in candidates), right="round")
    _section("asked, not yet answered", ("control", "verb", "candidate", "by"),
             ((c.id, c.verb, c.candidate[:12], c.by) for c in controls))


def _show_candidate(reader: Reader, one: Candidate, *, as_json: bool) -> None:
    verdicts = reader.verdicts(one.campaign, candidate=one.id)
    decisions = [d for d in reader.decisions(one.campaign) if d.candidate == one.id]
    if as_json:
        emit({"candidate": one, "decisions": decisions,
              "verdicts": [{"id": v.id, "purpose": v.purpose, "at": v.at,
                            "incumbent_tree": v.incumbent_tree, "verdict": body(v.body)}
                           for v in verdicts]})
        return
    facts([("candidate", one.id), ("campaign", one.campaign), ("round", one.round),
           ("slot", one.slot), ("state", f"{phrases.signed(one.state)} {one.reason}".strip()),
           ("hypothesis", one.hypothesis), ("attacks", one.bottleneck),
           ("base", one.base_commit[:12]), ("commit", one.commit[:12]),
           ("captured", phrases.stamp(one.created_at)), ("patch", one.patch_path)])
    _section("decisions", ("at", "decision", "by", "reason"),
             ((phrases.stamp(d.at), phrases.signed(d.kind), d.actor, d.reason) for d in decisions))
    for verdict in verdicts:
        _show_verdict(verdict)


def _show_verdict(verdict: VerdictRow) -> None:
    print(f"\nverdict {verdict.id}, {phrases.clean(verdict.purpose)}: {said(verdict)}")
    show(("class", "correct", "outcome", "latency", "incumbent", "speedup", "error budget"),
         class_rows(verdict), right="latency incumbent")


def _section(title: str, headers: Sequence[str], rows: Iterable[Sequence[Cell]], *,
             right: str = "") -> None:
    """Print a table under its title, nothing when it has no rows."""
    if listed := list(rows):
        print(f"\n{title}")
        show(headers, listed, right=right)

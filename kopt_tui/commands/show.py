"""`kopt show`: everything about a campaign or a candidate."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

import msgspec

from engine.history import history, waiting_line
from engine.history.waiting_line import Line
from engine.journal import model_costs
from engine.journal.decoded import plan_event
from engine.journal.decoded.patch_review import PatchReview
from engine.journal.decoded.plan_event import RoundPlan
from engine.journal.judged_rows import DecisionRow
from engine.journal.model_costs import ModelCost
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Campaign, Candidate, Control, Round, Slot
from engine.records import class_history, measured, present_limits
from engine.records.class_history import ClassMeasurement
from engine.verify import reference_lines
from harness.formats import quantities
from kopt_tui.cli.campaign_choice import choose_campaign, find_candidate, open_journal
from kopt_tui.cli.output import Cell, print_facts, print_json, print_table, print_verdict
from kopt_tui.cli.parser import add_json
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.campaign_rows import engine_state
from kopt_tui.snapshot.candidate_view import whole_view
from kopt_tui.snapshot.snapshot import CandidateView
from kopt_tui.snapshot.verdict_words import JudgedVerdict


class ShownCampaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign; `slots` are those of its newest round, `controls` wait for an answer."""

    campaign: Campaign
    rounds: tuple[Round, ...]
    slots: tuple[Slot, ...]
    candidates: tuple[Candidate, ...]
    bottlenecks: tuple[Bottleneck, ...]
    controls: tuple[Control, ...]
    classes: tuple[ClassMeasurement, ...]
    """Each config class at the baseline and after each keep; empty if nothing was kept."""
    plan: RoundPlan | None
    model_costs: tuple[ModelCost, ...]
    """What language models cost, by round and slot."""


class ShownCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with all decisions and verdicts on it."""

    candidate: Candidate
    decisions: tuple[DecisionRow, ...]
    verdicts: tuple[JudgedVerdict, ...]
    review: PatchReview | None = None
    """What a model says of it; decides nothing."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CAMPAIGN|CANDIDATE", nargs="?", default=None,
                        help="a name or the start of one (default: the newest campaign)")
    add_json(parser, ShownCampaign, ShownCandidate)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        candidate = find_candidate(reader, args.name)
        if candidate is not None:
            _show_candidate(candidate, whole_view(reader, candidate),
                            waiting_line.read(reader, candidate.campaign), as_json=args.json)
        else:
            _show_campaign(reader, choose_campaign(reader, args.name), as_json=args.json)
    return 0


def _show_campaign(reader: Reader, campaign: Campaign, *, as_json: bool) -> None:
    name, past = campaign.id, history.read(reader, campaign.id)
    shown = ShownCampaign(
        campaign=campaign, rounds=tuple(reader.rounds(name)),
        slots=tuple(reader.slots(name, campaign.round)), candidates=tuple(reader.candidates(name)),
        bottlenecks=tuple(reader.bottlenecks(name)),
        controls=tuple(reader.controls(name, open_only=True)),
        classes=tuple(class_history.by_class(past)), plan=plan_event.last(reader, name),
        model_costs=tuple(reader.model_costs(name)))
    if as_json:
        print_json(shown)
        return
    plan, costs = shown.plan, shown.model_costs
    engine = engine_state(reader, name)
    live, answers = engine.word == "alive", engine.answers_only
    state = f"{phrases.signed(phrases.state(campaign, live=live, answers_only=answers))} " \
        f"{phrases.phase(campaign, live=live, answers_only=answers)}"
    print_facts([
        ("campaign", name), ("target", f"{campaign.op} in {campaign.lang or campaign.backend}"),
        ("state", state.strip()), ("best", phrases.best(campaign)),
        ("the bar", measured.standing(past)),
        ("waits", waiting_line.provisional(reader, name)),
        ("device", campaign.device or campaign.gpu), ("project", campaign.project),
        ("folder", campaign.path), ("base", campaign.base_commit[:12]),
        ("best at", campaign.best_commit[:12]),
        ("iteration", f"{campaign.iteration_place} (round {campaign.round}; the baseline is 1)"
                       if campaign.round > 1 else campaign.iteration_place),
        ("models", model_costs.total(costs, len(past.standing))),
        ("plan", str(plan or "")), ("routing", plan.routing if plan else ""),
        ("started", phrases.stamp(campaign.created_at)),
        ("last", phrases.stamp(campaign.updated_at))])
    _print_section("rounds", ("round", "scope", "outcome", "best", "summary"), (
        (round.n, round.scope, phrases.signed(past.outcome_now(round)) if round.outcome else
         "running" if live else "not ended",
         quantities.speedup(round.best_speedup or None), round.summary) for round in shown.rounds),
        right="round best")
    _print_section("what models cost", model_costs.HEAD, model_costs.rows(costs),
                   right="round attempts answers tokens read tokens written")
    _print_section("classes", class_history.HEAD, class_history.rows(past), right="round time",
                   spare=("commit",))
    if known := reference_lines.read(reader, name):
        _print_section(f"reference lines, {known.measured()}", measured.REFERENCES,
                       measured.reference_rows(past), right="best")
        if known.failure:
            print_text(phrases.clean(known.failure))
    _print_section("waiting line", ("candidate", "round", "slot", "state", "approval"), (
        (entry.id[:12], entry.round, entry.slot, phrases.signed(entry.state),
         (waiting_line.obstacle(past.line, entry) or f"kopt approve {entry.id[:12]}")
         if entry.state == "waiting" else "none needed") for entry in past.line), right="round")
    _print_section("slots", ("slot", "kind", "backend", "hypothesis", "stage"), (
        (slot.slot, slot.kind, slot.backend, phrases.quoted(slot.hypothesis),
         " ".join(filter(None, (slot.stage, phrases.agent(slot.agent),
                                slot.detail.removeprefix(slot.stage).strip()))))
        for slot in (shown.slots if live else map(phrases.cut_off, shown.slots))))
    _print_section("bottlenecks", ("id", "where", "limiter", "value", "finding and advice"), (
        (entry.id, f"{entry.kernel} {entry.config_class}".strip(), entry.limiter,
         "" if entry.value is None else f"{entry.value:.4g} {entry.metric}",
         " → ".join(filter(None, (entry.detail, advice))))
        for entry, advice in zip(shown.bottlenecks, present_limits.advice_once(shown.bottlenecks),
                                 strict=True)))
    for cause in plan.causes if plan else ():
        print_text(phrases.clean(f"a model suggests: {cause}"))
    _print_section("candidates", ("candidate", "round", "slot", "state", "hypothesis", "reason"), (
        (candidate.id[:12], candidate.round, candidate.slot, phrases.signed(candidate.state),
         phrases.quoted(candidate.hypothesis), candidate.reason)
        for candidate in shown.candidates), right="round")
    _print_section("requests not yet answered", ("control", "verb", "candidate", "by"), (
        (control.id, control.verb, control.candidate[:12], control.by)
        for control in shown.controls))


def _show_candidate(candidate: Candidate, view: CandidateView, line: Line, *,
                    as_json: bool) -> None:
    if as_json:
        print_json(ShownCandidate(candidate=candidate, decisions=view.decisions,
                                  verdicts=view.verdicts, review=view.review))
        return
    state = f"{phrases.signed(candidate.state)} {candidate.reason}"
    print_facts([
        ("candidate", candidate.id), ("campaign", candidate.campaign), ("round", candidate.round),
        ("slot", candidate.slot), ("state", state.strip()),
        ("hypothesis", phrases.quoted(candidate.hypothesis)),
        ("again", view.again), ("approval", waiting_line.obstacle(line, candidate)
         if candidate.state == "waiting" else ""),
        ("built on it", waiting_line.resting(line, candidate.id)),
        ("a model", view.review.brief if view.review else ""),
        ("bottleneck", candidate.bottleneck), ("base", candidate.base_commit[:12]),
        ("commit", candidate.commit[:12]), ("captured", phrases.stamp(candidate.created_at)),
        ("patch", candidate.patch_path)])
    _print_section("decisions", ("at", "decision", "by", "reason"), (
        (phrases.stamp(decision.at), phrases.ruled(decision.kind, decision.reason)[0],
         decision.actor, decision.reason) for decision in view.decisions))
    for judged in view.verdicts:
        title = f"verdict {judged.id}, {judged.purpose}: "
        print()
        if judged.verdict is None:
            print_text(phrases.clean(f"{title}this version of kopt cannot read it"))
        else:
            print_verdict(judged.verdict, title)
    if view.review is not None and view.review.lines:
        print()
        print(phrases.clean(f"review by {view.review.model} (advisory)"))
        for text in view.review.lines:
            print_text(phrases.clean(f"  {text}", 1000))


def _print_section(title: str, headers: Sequence[str], rows: Iterable[Sequence[Cell]], *,
                   right: str = "", spare: Sequence[str] = ()) -> None:
    """Print a table under its title, nothing if it has no rows."""
    if listed := list(rows):
        print(f"\n{title}")
        print_table(headers, listed, right=right, spare=spare)

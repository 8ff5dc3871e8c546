"""`kopt approve`, `reject`, `pause`, `resume`, `stop`, `set`: a request to a campaign's engine."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.campaign import handover
from engine.history import campaign_view, waiting_line
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, Control, ControlVerb
from engine.manifest import command_checks, limits, load
from harness.errors import InputError, KoptError, Refused
from harness.formats.quantities import listed
from kopt_tui.cli import submission
from kopt_tui.cli.campaign_choice import (
    choose_campaign,
    choose_running,
    is_live,
    only_answers,
    open_journal,
)
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import add_campaign, add_json, workspace_of
from kopt_tui.cli.text_lines import print_text
from kopt_tui.control import ControlRequest, send
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.phrases import clean


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request: `control` is its number, null where there was nothing to do.

    Where the engine has not `answered` yet, kopt show lists the request.
    """

    control: int | None
    campaign: str
    verb: ControlVerb
    candidate: str
    answered: bool
    refused: bool
    outcome: str


WAIT_S = 10.0
POLL_S = 0.1
NAMED = 3
APPLIED = ("kept", "rejected", "paused", "resumed", "stopping", "changed")
"""The first words of an engine's answer to a request that it carried out."""
DECISIONS = ("approve", "reject")


def add(parser: argparse.ArgumentParser) -> None:
    if parser.get_default("verb") in DECISIONS:
        parser.add_argument("candidate", metavar="CANDIDATE", nargs="?", default=None,
                            help="its id or the start of it (default: the only one that waits in "
                                 "the newest campaign or in --campaign)" + (
                                 "; a gain that is built on another one can only be approved "
                                 "after it" if parser.get_default("verb") == "approve" else ""))
        parser.add_argument("--campaign", metavar="ID", default=None,
                            help="the candidate's campaign, where the id alone is ambiguous")
        if parser.get_default("verb") == "reject":
            parser.add_argument("--reason", metavar="TEXT", default="",
                                help="why; the records and the agents of later rounds quote it")
    elif parser.get_default("verb") == "set":
        parser.usage = "kopt set [CAMPAIGN] LIMIT=VALUE [LIMIT=VALUE ...] [--flags]"
        parser.add_argument("words", metavar="[CAMPAIGN] LIMIT=VALUE", nargs="+",
                            help="CAMPAIGN defaults to the newest one; the value none removes a "
                                 "limit")
        parser.epilog = f"Limits: {', '.join(limits.LIMITS)}."
    else:
        add_campaign(parser, "the only one that an engine runs"
                     if parser.get_default("verb") != "resume" else "the newest campaign")
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=WAIT_S,
                        help=f"how long to wait for the engine's answer (default {WAIT_S:g})")
    add_json(parser, ControlAnswer)


def run(args: argparse.Namespace) -> int:
    if not args.wait >= 0:
        raise InputError("--wait must be a number of at least 0")
    number, busy = None, ""
    with open_journal(args) as reader:
        request = _request(reader, args)
        is_kept = request.verb == "approve" and \
            reader.candidate(request.candidate, request.campaign).state == "kept"
        outcome, is_answered = "kept already", True
        if not is_kept:
            starts = request.verb == "resume" and not is_live(reader, request.campaign)
            if starts:
                _warn_before_start(choose_campaign(reader, request.campaign))
            number = send(workspace_of(args), request)
            control = _answer(reader, request.campaign, number, args.wait)
            is_answered = control is not None and control.applied_at is not None
            outcome = control.outcome if control is not None else ""
            if request.verb == "approve" and outcome.startswith("kept"):
                outcome = "; ".join(filter(None, (outcome, _next_step(
                    reader, choose_campaign(reader, request.campaign)))))
            busy = "" if is_answered else _busy(reader, request, starts=starts)
    is_refused = is_answered and not outcome.startswith(APPLIED)
    if args.json:
        print_json(ControlAnswer(
            control=number, campaign=request.campaign, verb=request.verb,
            candidate=request.candidate, answered=is_answered, refused=is_refused,
            outcome=outcome))
    else:
        print_text(f"{request.verb} {request.candidate[:12] or request.campaign}: "
                   + (clean(outcome) or "done" if is_answered else
                      f"recorded; {busy or 'the engine has not answered yet'} (kopt show lists "
                      "the request)"))
    return 1 if is_refused else 0


def _warn_before_start(campaign: Campaign) -> None:
    """Say what agents lack in this shell, which starts the engine, and which files are older."""
    with contextlib.suppress(KoptError, OSError):  # the engine reports what cannot be read
        manifest = load.load(Path(campaign.path) / "manifest.yaml")
        for problem in command_checks.agent_problems(manifest):
            print_note(problem)
        if changed := handover.changed_files(campaign, manifest):
            print_note(f"{listed(changed, NAMED)} changed since {campaign.id} began, which goes on "
                       "with the files that it began with; kopt run MANIFEST --new starts a "
                       "campaign with those of now")


def _next_step(reader: Reader, campaign: Campaign) -> str:
    """Return what a person can do after an approval, "" while an engine runs the campaign."""
    if campaign_view.has_untried_best(reader, campaign):
        return phrases.untried_best(campaign)
    live = is_live(reader, campaign.id) and not only_answers(reader, campaign.id)
    return phrases.result(campaign) or phrases.without_engine(campaign, live=live)


def _request(reader: Reader, args: argparse.Namespace) -> ControlRequest:
    """Return the request; raises Refused where the campaign or the candidate excludes it."""
    if args.verb in DECISIONS:
        return _decision(reader, args)
    if args.verb == "set":
        return _limits(reader, args.words)
    if args.verb != "resume":
        return ControlRequest(campaign=choose_running(reader, args.campaign).id, verb=args.verb)
    campaign = choose_campaign(reader, args.campaign)
    if campaign.state == "running" and is_live(reader, campaign.id) \
            and not only_answers(reader, campaign.id) \
            and not reader.pauses_soon(campaign.id):
        raise Refused(f"{campaign.id} is already running", fix="kopt attach shows it, "
                      "kopt resume CAMPAIGN resumes another")
    return ControlRequest(campaign=campaign.id, verb="resume")


def _decision(reader: Reader, args: argparse.Namespace) -> ControlRequest:
    """Return the approval or rejection of a candidate that waits for one."""
    owner = None if args.campaign is None else choose_campaign(reader, args.campaign).id
    candidate = _only_waiting(reader, choose_campaign(reader, owner)) \
        if args.candidate is None else reader.candidate(args.candidate, owner)
    name = candidate.id[:12]
    if args.verb == "approve" and candidate.state in ("keeping", "kept"):
        return ControlRequest(campaign=candidate.campaign, verb="approve", candidate=candidate.id)
    newest = reader.newest_decision(candidate.campaign, candidate.id)
    if candidate.state == "closed" and newest is not None and newest.is_rejection:
        raise Refused(f"candidate {name} was {newest.reason}",
                      fix=submission.ask_again(candidate.id))
    if candidate.state != "waiting":
        raise Refused(f"candidate {name} is {candidate.state} and does not wait for approval",
                      fix=f"kopt show {name} says why" if candidate.reason else "")
    if args.verb == "approve" and (reason := waiting_line.obstacle(
            waiting_line.read(reader, candidate.campaign), candidate)):
        raise Refused(f"candidate {name} cannot be approved yet: {reason}")
    verdict = reader.newest_verdict(candidate.campaign, candidate.id)
    return ControlRequest(
        campaign=candidate.campaign, verb=args.verb, candidate=candidate.id,
        expected_base=candidate.base_commit, expected_verdict=verdict.id if verdict else None,
        reason=args.reason if args.verb == "reject" else "")


def _only_waiting(reader: Reader, campaign: Campaign) -> Candidate:
    """Return the one candidate that waits; raises Refused for none or several."""
    waiting = reader.candidates(campaign.id, states=("waiting",))
    if not waiting:
        raise Refused(f"nothing waits for approval in {campaign.id}",
                      fix="kopt show lists what it tried" if campaign.best_commit
                      == campaign.base_commit else "kopt merge applies what it has kept")
    if len(waiting) > 1:
        raise Refused(f"{len(waiting)} candidates wait for approval in {campaign.id}",
                      fix=f"name one: {', '.join(each.id[:12] for each in waiting)}")
    return waiting[0]


def _limits(reader: Reader, settings: Sequence[str]) -> ControlRequest:
    """Return the request to set limits; raises InputError for a name or value that is wrong."""
    names = [word for word in settings if "=" not in word]
    requested = dict(word.split("=", 1) for word in settings if "=" in word)
    if len(names) > 1 or not requested:
        raise InputError(f"expected LIMIT=VALUE, got {' '.join(settings)!r}",
                         fix="such as kopt set CAMPAIGN max_iterations=8")
    campaign = choose_campaign(reader, names[0] if names else None)
    limits.with_limits(load.load(Path(campaign.path) / "manifest.yaml"), requested)
    return ControlRequest(campaign=campaign.id, verb="set", limits=requested)


def _busy(reader: Reader, request: ControlRequest, *, starts: bool) -> str:
    """Return what a campaign's engine does before it answers, "" if that is not known.

    `starts`: the request has started it.
    """
    campaign = choose_campaign(reader, request.campaign)
    if not is_live(reader, campaign.id):
        return ""
    if starts:
        return "an engine is being started, and answers when it has finished this: " \
            f"{campaign.phase or 'its start'}"
    if only_answers(reader, campaign.id):
        return "a process answers another request first, and the campaign continues after that" \
            if request.verb == "resume" else "a process is answering it, and ends after that"
    busy = campaign.state != "paused" and campaign.phase
    return f"the engine answers when it has finished this: {phrases.work(campaign)}" if busy else ""


def _answer(reader: Reader, campaign_id: str, number: int, wait_s: float) -> Control | None:
    deadline = time.monotonic() + wait_s
    while True:
        control = next((entry for entry in reader.controls(campaign_id)
                        if entry.id == number), None)
        if control is None or control.applied_at is not None or time.monotonic() >= deadline:
            return control
        time.sleep(POLL_S)

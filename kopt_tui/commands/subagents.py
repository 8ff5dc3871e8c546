"""`kopt subagents`: list, show, check and render the prompts with which models work in slots."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engine.campaign.judged_target import JudgedTarget
from engine.campaign.setup import Setup, open_campaign
from engine.journal.read import Reader
from engine.planning import kernel_routing
from engine.routing import source_language
from engine.subagents import rendering, subagent_registry
from engine.subagents.rendering import SlotFacts
from engine.subagents.subagent import Subagent
from engine.subagents.subagent_registry import Registry
from engine.task import Task
from engine.workers import agent, slot_facts
from engine.workers.model.attempt_limits import AttemptLimits
from engine.workers.transcript import TranscriptReader
from harness.errors import DeviceFault, InputError, KoptError
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal, project_here
from kopt_tui.cli.gpu_gate import open_target
from kopt_tui.cli.new import new_harness
from kopt_tui.cli.output import print_facts, print_json, print_note, print_table
from kopt_tui.cli.parser import (
    Actions,
    add_campaign,
    add_json,
    add_workspace,
    workspace_of,
)
from kopt_tui.snapshot.phrases import clean


class ListedSubagent(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent; kopt subagents show NAME prints its limits and its prompt."""

    name: str
    description: str
    requires: tuple[str, ...]
    source_language: str
    target_language: str
    path: str


class ListedSubagents(msgspec.Struct, frozen=True, kw_only=True):
    """The subagents of kopt, this user and the project; `problems` are faults in their files."""

    subagents: tuple[ListedSubagent, ...]
    problems: tuple[str, ...]


class CheckedSubagents(msgspec.Struct, frozen=True, kw_only=True):
    """The names of all subagents, and a line for each bad file."""

    subagents: tuple[str, ...]
    problems: tuple[str, ...]


class RenderedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt that a slot's model gets: the subagent's, then the slot's task."""

    name: str
    system_prompt: str
    task: str
    """The campaign's newest one of this subagent, "" if there is none; with --manifest one whose
    hypothesis, bottleneck and history are not known yet."""


PLACEHOLDER = Task(slot="planned-1", kind="planned", backend="", round=2, seed=0, trials=0,
                   hypothesis="(the slot's hypothesis)", bottleneck="(the slot's bottleneck)")


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ("Folders in this order, later ones override earlier ones: kopt's own, "
                     "~/.config/kopt/subagents, and subagents in the project.")
    add_json(parser, ListedSubagents)
    parser.set_defaults(action="list", source=None)
    actions = Actions(parser)
    listing = actions.add("list", "list all subagents (the default)")
    listing.add_argument("--source", metavar="FILE", type=Path, default=None,
                         help="only those that may work on this source")
    show = actions.add("show", "print one subagent and its prompt's template")
    show.add_argument("name", metavar="NAME")
    check = actions.add("check", "check all files; print a line for each invalid one")
    render = actions.add("render", "print the exact prompt for a campaign: the subagent's, then "
                         "the newest slot's task")
    render.add_argument("name", metavar="NAME")
    add_campaign(render)
    render.add_argument("--manifest", metavar="FILE", type=Path, default=None,
                        help="for a campaign that has not started yet, of this manifest")
    write = actions.add("harness", "have a benchmark written for a kernel that has none, check it "
                        "and freeze it")
    new_harness.add(write)
    for action, answers in ((listing, (ListedSubagents,)), (show, (Subagent,)),
                            (check, (CheckedSubagents,)), (render, (RenderedPrompt,)),
                            (write, new_harness.ANSWERS)):
        action.set_defaults(action=action.prog.split()[-1])
        add_json(action, *answers, default=argparse.SUPPRESS)
        add_workspace(action, default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    code: int = {"list": _list, "show": _show, "check": _check, "render": _render,
                 "harness": new_harness.run}[args.action](args)
    return code


def _list(args: argparse.Namespace) -> int:
    known = subagent_registry.load(project_here())
    for problem in known.problems:
        print_note(problem)
    names: Iterable[str] = known.names
    if args.source is not None:
        try:
            text = args.source.read_text(errors="replace")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(args.source)) from error
        language = source_language.detect(text, args.source.name)
        names = [name for name, subagent in known.for_source(args.source.name, text).items()
                 if subagent.source_language in ("", language)]
    subagents = [known.get(name) for name in names]
    if args.json:
        print_json(ListedSubagents(problems=tuple(known.problems), subagents=tuple(
            ListedSubagent(**{name: getattr(subagent, name)
                              for name in ListedSubagent.__struct_fields__})
            for subagent in subagents)))
    else:
        print_table(("name", "needs", "description"), (
            (subagent.name, " ".join(subagent.requires), subagent.description)
            for subagent in subagents))
    return 0


def _show(args: argparse.Namespace) -> int:
    subagent = subagent_registry.load(project_here()).get(args.name)
    if args.json:
        print_json(subagent)
        return 0
    print_facts((
        ("name", subagent.name), ("description", subagent.description), ("folder", subagent.path),
        ("from", subagent.source_language), ("to", subagent.target_language),
        ("needs", " ".join(subagent.requires)), ("steps", subagent.step_limit or "unlimited"),
        ("cost limit", f"{subagent.cost_limit_usd:g} USD" if subagent.cost_limit_usd else ""),
        ("time limit", f"{subagent.timeout_s:g} s" if subagent.timeout_s else ""),
        ("model", subagent.model),
        *(("parameter", f"{parameter.name}: {parameter.description}")
          for parameter in subagent.parameters)))
    print()
    for line in subagent.system_prompt.splitlines():
        print(clean(line, 2000))
    return 0


def _check(args: argparse.Namespace) -> int:
    known = subagent_registry.load(project_here())
    problems = [*known.problems, *template_problems(known)]
    if args.json:
        print_json(CheckedSubagents(subagents=tuple(known.names), problems=tuple(problems)))
    for problem in problems:
        print(clean(problem, 600), file=sys.stderr if args.json else sys.stdout)
    if not (problems or args.json):
        print(f"{len(known.names)} subagents, no problems")
    return 1 if problems else 0


def template_problems(known: Registry) -> list[str]:
    """Return one line for each prompt that cannot be rendered."""
    problems: dict[str, None] = {}
    for name in known.names:
        subagent = known.get(name)
        try:
            rendering.system_prompt(subagent, SlotFacts(), {
                parameter.name: parameter.value or "-" for parameter in subagent.parameters})
        except KoptError as error:
            problems[str(error)] = None
    return list(problems)


def _render(args: argparse.Namespace) -> int:
    if args.manifest is not None:
        with open_target(args.manifest) as one_shot:
            judged = one_shot.judged
            prompt = _prompt(args.name, judged, judged.device.label)
            task = _coming_task(args.name, judged)
        print_note("hypothesis, bottleneck and history of its task are not known yet" if task else
                   f"{args.name} works in no slot: its task is known once it was asked")
    else:
        with open_journal(args) as reader:
            campaign = choose_campaign(reader, args.campaign)
            setup = open_campaign(workspace_of(args), campaign.id, to_read=True)
            prompt = _prompt(args.name, setup, campaign.device)
            task = _newest_task(reader, setup, args.name)
    if args.json:
        print_json(RenderedPrompt(name=args.name, system_prompt=prompt, task=task))
    else:
        print(f"{prompt}{task and chr(10)}{task}", end="")
    return 0


def _newest_task(reader: Reader, setup: Setup, name: str) -> str:
    """Return the newest task of a subagent, or "" and print a note.

    That is the task of a candidate or, of one that is asked between rounds, what it was told.
    """
    for candidate in reversed(reader.candidates(setup.id)):
        task = reader.task(setup.id, candidate.id)
        if task is not None and task.subagent == name:
            print_note(f"its task is that of candidate {candidate.id[:12]}, {candidate.slot} of "
                       f"round {candidate.round}")
            with contextlib.suppress(DeviceFault):  # its architecture selects pages
                setup = open_campaign(setup.workspace, setup.id)
            return _task(name, setup, setup.tree(candidate.base_commit), task)
    for round in reversed(reader.rounds(setup.id)):
        if attempt := setup.folder.last_attempt(round.n, name):
            path = setup.folder.transcript(round.n, name, attempt)
            print_note(f"its task is that of round {round.n}, in {path}")
            return "".join(entry.text for entry in TranscriptReader(path).read()
                           if entry.role == "user")
    print_note(f"nothing in {setup.id} is by {name}: its task is not known yet")
    return ""


def _coming_task(name: str, judged: JudgedTarget) -> str:
    """Return a task of a campaign that has not begun, as far as it is known."""
    tree = judged.tree(judged.repo.base)
    subagent = subagent_registry.load(Path(judged.manifest.project)).get(name)
    rules = kernel_routing.translation_brief(
        judged, kernel_routing.of_target(judged, tree), subagent.target_language)
    return _task(name, judged, tree, msgspec.structs.replace(
        PLACEHOLDER, brief=rules, backend="agent" if judged.manifest.pool.agent else "cli"))


def _task(name: str, judged: JudgedTarget, tree: Path, task: Task) -> str:
    """Return the task's prompt as the slot's worker gets it, "" for one that works in no slot."""
    manifest = judged.manifest
    subagent = subagent_registry.load(Path(manifest.project)).get(name)
    if name != subagent_registry.DEFAULT and not subagent.target_language:
        return ""
    pool, arch = manifest.pool, judged.devices[0].arch if judged.devices else ""
    text = slot_facts.task_prompt(
        task, judged.target, Path("$HOME/candidate"), slot_facts.knowledge_of(
            judged.target, tree, arch, subagent, Path(manifest.project)),
        edit=judged.edit, python=manifest.python, screenings=pool.screenings)
    if task.backend == "agent" and pool.agent is not None:
        text += agent.instructions(AttemptLimits(
            pool.agent, subagent, pool.worker_timeout_s, None), pool.agent)
    return text


def _prompt(name: str, judged: JudgedTarget, device: str) -> str:
    """Return the system prompt that a slot's model gets in a campaign on this target."""
    subagent = subagent_registry.load(Path(judged.manifest.project)).get(name)
    return rendering.system_prompt(subagent, slot_facts.of_target(
        judged.target, edit=judged.edit, device=device, python=judged.manifest.python))

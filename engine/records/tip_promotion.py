"""Turns a tip that a campaign has learned into a page of knowledge, with the evidence for it."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from engine import data_folders
from engine.campaign.setup import open_campaign
from engine.history import campaign_view, lessons
from engine.history.history import CampaignHistory
from engine.history.lessons import Lesson
from engine.journal.decoded.recorded import verdict_or_none
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.judge.judge import describe_speedup
from engine.knowledge import page_files, page_library, page_routing
from engine.knowledge.page_files import BUILT_IN, Page
from engine.knowledge.page_library import LEARNED
from engine.knowledge.page_routing import Subject
from engine.markdown import fenced, line, stamp, table
from harness.devices import datasheets
from harness.errors import InputError, Refused
from harness.formats import quantities
from harness.formats.text import plain
from harness.verdict import Row, Verdict

MOST_CLASSES = 10
"""Config classes on a page, those with the largest gain first."""


class PromotableTip(msgspec.Struct, frozen=True, kw_only=True):
    """A tip, and the page that a person has made of it, "" if none."""

    tip: str
    campaign: str
    round: int
    at: float
    device: str
    text: str
    page: str


class PromotedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that `promote` wrote or `demote` removed."""

    page: str
    path: str


def promotable(reader: Reader, project: Path | None) -> list[PromotableTip]:
    """Return a workspace's tips that their campaigns' histories still support, the newest last."""
    known = page_library.load(project).by_name
    tips = []
    for campaign in reader.campaigns():
        for lesson in _supported_lessons(reader, campaign)[1]:
            page = _page_name(campaign, lesson)
            tips.append(PromotableTip(
                tip=lesson.key, campaign=campaign.id, round=lesson.round, at=lesson.at,
                device=campaign.device, text=lesson.text, page=page if page in known else ""))
    return sorted(tips, key=lambda tip: tip.at)


def promote(reader: Reader, tip: str, *, campaign: str = "", in_project: bool = False
            ) -> PromotedPage:
    """Write the page of a tip, given by the start of its key, for the user or into the project.

    Raises InputError if no tip or more than one has such a key, Refused if it has a page.
    """
    chosen = [(row, past, lesson) for row in reader.campaigns() if row.id.startswith(campaign)
              for past, supported in [_supported_lessons(reader, row)] for lesson in supported
              if tip and lesson.key.startswith(tip)]
    if len(chosen) != 1:
        names = ", ".join(f"{lesson.key} of {row.id}" for row, _, lesson in chosen[:4])
        raise InputError(f"{plain(tip, 100)!r} is ambiguous: {names}" if chosen else
                         f"no campaign here has a valid tip {plain(tip, 100)!r}",
                         where=str(reader.path.parent),
                         fix="name the campaign too" if chosen else
                         "kopt knowledge promote lists the tips")
    row, past, lesson = chosen[0]
    root = (Path(row.project) / BUILT_IN.name if in_project else
            data_folders.user_folder(BUILT_IN.name)).resolve()
    if in_project and not root.parent.is_dir():
        raise InputError("the campaign's project is gone", where=str(root.parent),
                         fix="promote it to your own pages, without --project")
    if root == BUILT_IN:
        raise Refused("this project is kopt itself, whose pages are built in", where=str(root),
                      fix="promote it to your own pages, without --project")
    path = root / f"{_page_name(row, lesson)}.md"
    text = page_text(row, past, lesson, _subject(reader, row, past, lesson))
    page = page_files.parse(text, path, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"the page {page.name} already exists", where=str(path),
                      fix=f"kopt knowledge demote {page.name} removes it") from None
    return PromotedPage(page=page.name, path=str(path))


def demote(page: Page) -> PromotedPage:
    """Remove the page of a tip. Raises Refused for any other page."""
    if page.kind != LEARNED:
        raise Refused(f"{page.name} was not made from a tip",
                      fix="only pages made from tips can be removed")
    path = Path(page.folder) / page.path
    path.unlink()
    return PromotedPage(page=page.name, path=str(path))


def page_text(campaign: Campaign, past: CampaignHistory, lesson: Lesson, subject: Subject) -> str:
    """Return the page of a lesson; what workers wrote is in it as quoted text."""
    decision = _decision(past, lesson)
    row = past.row_of(decision)
    verdict = None if row is None else verdict_or_none(row)
    short = textwrap.shorten(lesson.text, 100, placeholder="…")
    title = f"{campaign.op} in {campaign.backend} on {campaign.device}"
    limits = {"ops": subject.op, "languages": subject.language, "gpus": subject.gpu}
    head = [f"summary: {json.dumps(plain(f'{title}: {short}', 200), ensure_ascii=False)}",
            *(f"{name}: [{json.dumps(value)}]" for name, value in limits.items() if value)]
    facts = [("campaign", f"{campaign.id}, round {lesson.round}, {stamp(lesson.at)}"),
             ("decision", f"{decision.kind} of {decision.candidate} by {decision.actor}"),
             ("commit", decision.commit), ("card", campaign.device)]
    if verdict is not None and verdict.speedup is not None:
        facts.append(("speedup", describe_speedup(verdict) + quantities.alpha_level(verdict.alpha)
                      + f", {verdict.time_kind}"))
    parts = ["---", *head, "---", f"# Learned: {line(title, 200)}", "",
             "A campaign's words, with what it measured. Measure before you rely on them.", "",
             fenced(textwrap.fill(lesson.text, 96), lessons.LONGEST + 100, "text"), "",
             table(("evidence", ""), [fact for fact in facts if fact[1]])]
    return "\n".join([*parts, *_classes(verdict)])


def _classes(verdict: Verdict | None) -> Iterator[str]:
    """Yield a table of what a verdict measured in each config class."""
    rows = [row for row in verdict.rows if row.log_ratio is not None] if verdict else []
    rows.sort(key=lambda row: -(row.log_ratio or 0))
    if rows:
        yield table(("class", "before", "after", "speedup"), map(_cells, rows[:MOST_CLASSES]))
    if len(rows) > MOST_CLASSES:
        yield f"and {len(rows) - MOST_CLASSES} more classes\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (plain(row.config_class, 60), quantities.latency(row.incumbent_us),
            quantities.latency(row.latency_us),
            quantities.speedup_of_log(row.log_ratio, row.low, row.high))


def _supported_lessons(reader: Reader, campaign: Campaign) -> tuple[CampaignHistory, list[Lesson]]:
    """Return a campaign's history, and those of its recorded lessons that it still supports."""
    past = campaign_view.read_with_manifest(reader, campaign).history
    keys = {lesson.key for lesson in lessons.recorded(reader, campaign.id)}
    return past, [lesson for lesson in lessons.of(past, accepted=True) if lesson.key in keys]


def _decision(past: CampaignHistory, lesson: Lesson) -> DecisionRow:
    return next(decision for decision in past.decisions if decision.id == lesson.decision)


def _page_name(campaign: Campaign, lesson: Lesson) -> str:
    name = "-".join((campaign.op, campaign.backend, campaign.gpu)).lower()
    safe = "".join(char if char.isascii() and char.isalnum() else "-" for char in name)
    return f"{LEARNED}/{safe.strip('-')[:80]}-{lesson.key[:8]}"


def _subject(reader: Reader, campaign: Campaign, past: CampaignHistory, lesson: Lesson) -> Subject:
    """Return what the page is for: the op, language and architecture of the campaign's kernel."""
    setup = open_campaign(reader.path.parent, campaign.id, to_read=True)
    commit, source = _decision(past, lesson).commit or past.best, ""
    with suppress(InputError):  # a benchmark without a source of its own
        source = setup.repo.read(commit, setup.target.source).decode(errors="replace")
    card = datasheets.find(re.sub(r"^\d+ x ", "", campaign.device))
    gpu = card.arch if card is not None else campaign.gpu
    return page_routing.subject_of(setup.target, source, op=campaign.op,
                                   gpu=gpu if datasheets.find_arch(gpu) else "")

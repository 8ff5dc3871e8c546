"""`kopt knowledge`: list, show and search pages and strategies; make pages of learned tips."""

from __future__ import annotations

import argparse
import re

import msgspec

from engine.knowledge import page_library, page_routing, strategy_record
from engine.knowledge.page_files import Page
from engine.knowledge.page_library import PageHit
from engine.knowledge.page_routing import Subject
from engine.knowledge.strategy_record import NO_RECORD, StrategyRecord
from engine.knowledge.strategy_table import StrategyRow, strategies
from engine.records import tip_promotion
from engine.records.tip_promotion import PromotableTip, PromotedPage
from engine.routing import op_class
from engine.routing.source_language import KERNEL_TYPES
from kopt_tui.cli.campaign_choice import open_journal, project_here
from kopt_tui.cli.output import print_json, print_note, print_table
from kopt_tui.cli.parser import Actions, add_json, add_workspace


class ListedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page, and the ops, languages and architectures that it is for; empty for all.

    `folder` is the user's or the project's folder that it is in, "" for kopt's own.
    """

    page: str
    summary: str
    ops: tuple[str, ...]
    languages: tuple[str, ...]
    gpus: tuple[str, ...]
    folder: str


class ListedPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of kopt, of this user and of the project; `problems` are faults in their files."""

    pages: tuple[ListedPage, ...]
    problems: tuple[str, ...]


class FoundPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages that contain all words of a search."""

    hits: tuple[PageHit, ...]


class KnowledgeExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's prompt contains of the pages about its op, architecture and language."""

    op: str
    pages: tuple[str, ...]
    excerpt: str


class ListedStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of strategies, and how often it has helped in this workspace."""

    strategy: StrategyRow
    record: StrategyRecord
    transformations: dict[str, StrategyRecord]
    templates: dict[str, StrategyRecord]


class ListedStrategies(msgspec.Struct, frozen=True, kw_only=True):
    """The fitting rows of the table of strategies; `gpu` is the card of the records, "" for all."""

    gpu: str
    strategies: tuple[ListedStrategy, ...]


class ListedTips(msgspec.Struct, frozen=True, kw_only=True):
    """The tips that this workspace's campaigns have learned, and whose evidence still stands."""

    tips: tuple[PromotableTip, ...]


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ("Pages come from these folders, later ones override earlier ones: kopt's own, "
                     "~/.config/kopt/knowledge, and knowledge in the project.")
    add_json(parser, ListedPages)
    parser.set_defaults(action="list")
    actions = Actions(parser)
    actions.add("list", "list all pages (the default)")
    show = actions.add("show", "print one page")
    show.add_argument("page", metavar="PAGE", help="its name, such as ops/gemm or sm_90")
    search = actions.add("search", "print the pages that contain all words")
    search.add_argument("words", metavar="WORD", nargs="+")
    excerpt = actions.add("excerpt", "print the pages that a worker's prompt contains")
    excerpt.add_argument("--op", metavar="NAME", default="", help="an op, such as matmul")
    excerpt.add_argument("--gpu", metavar="ARCH", default="", help="such as sm_90 or gfx942")
    excerpt.add_argument("--language", metavar="NAME", default="", help="such as triton or hip")
    table = actions.add(
        "strategies", "print what to try against which limit, and how often it has helped")
    table.add_argument("--against", metavar="LIMIT", default="",
                       help="a limit or a symptom, such as memory or 'bank conflicts'")
    table.add_argument("--op", metavar="NAME", default="", help="an op, such as matmul")
    table.add_argument("--language", metavar="NAME", default="", help="such as triton or c")
    table.add_argument("--card", metavar="NAME", default="",
                       help="count the campaigns on this card only, as `kopt status` names it")
    promote = actions.add(
        "promote", "list the tips that campaigns have learned, or make a page of one")
    promote.add_argument("tip", metavar="TIP", nargs="?", default="",
                         help="its key in the list, or the start of it")
    promote.add_argument("--campaign", metavar="ID", default="",
                         help="the campaign that learned it, or the start of its name")
    promote.add_argument("--project", action="store_true",
                         help="write it to knowledge/ in the campaign's project, for all who work "
                         "on it (default: to ~/.config/kopt/knowledge)")
    demote = actions.add("demote", "remove the page of a tip")
    demote.add_argument("page", metavar="PAGE")
    answers: dict[str, tuple[type, ...]] = {
        "list": (ListedPages,), "show": (Page,), "search": (FoundPages,),
        "excerpt": (KnowledgeExcerpt,), "strategies": (ListedStrategies,),
        "promote": (ListedTips, PromotedPage), "demote": (PromotedPage,)}
    for name, action in actions.parsers.items():
        action.set_defaults(action=name)
        add_json(action, *answers[name], default=argparse.SUPPRESS)
        add_workspace(action, default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    code: int = {"list": _list, "show": _show, "search": _search, "excerpt": _excerpt,
                 "strategies": _strategies, "promote": _promote,
                 "demote": _demote}[args.action](args)
    return code


def _list(args: argparse.Namespace) -> int:
    library = page_library.load(project_here())
    for problem in library.problems:
        print_note(problem)
    if args.json:
        print_json(ListedPages(problems=library.problems, pages=tuple(
            ListedPage(page=page.name, summary=page.head.summary, ops=page.head.ops,
                       languages=page.head.languages, gpus=page.head.gpus, folder=page.folder)
            for page in library.pages)))
    else:
        print_table(("page", "about"), ((page.name, page.head.summary) for page in library.pages))
    return 0


def _show(args: argparse.Namespace) -> int:
    page = page_library.load(project_here()).find(args.page)
    if args.json:
        print_json(page)
    else:
        print(page.text.strip())
    return 0


def _search(args: argparse.Namespace) -> int:
    hits = page_library.load(project_here()).search(args.words)
    if args.json:
        print_json(FoundPages(hits=tuple(hits)))
    for hit in hits if not args.json else ():
        print(f"{hit.page}: {hit.summary}")
        for line in hit.lines:
            print(f"  {line}")
    if not hits:
        print_note("no page contains all of these words")
    return 0 if hits else 1


def _excerpt(args: argparse.Namespace) -> int:
    subject = Subject(op=op_class.classify([args.op]).name, names=(args.op,), gpu=args.gpu,
                      language=KERNEL_TYPES.get(args.language, args.language))
    project = project_here()
    text = page_routing.excerpt(subject, project)
    if args.json:
        print_json(KnowledgeExcerpt(op=subject.op, excerpt=text, pages=tuple(
            page.name for page in page_routing.relevant(subject, project))))
    else:
        print(text)
    return 0


def _promote(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        if args.tip:
            made = tip_promotion.promote(reader, args.tip, campaign=args.campaign,
                                         in_project=args.project)
            return _print_page(args, "wrote", made)
        tips = [tip for tip in tip_promotion.promotable(reader, project_here())
                if tip.campaign.startswith(args.campaign)]
    if args.json:
        print_json(ListedTips(tips=tuple(tips)))
    else:
        print_table(("tip", "campaign", "round", "page", "text"), (
            (tip.tip, tip.campaign, tip.round, tip.page, tip.text) for tip in tips))
    if not tips:
        print_note("no campaign here has learned a tip whose evidence still holds")
    return 0 if tips else 1


def _demote(args: argparse.Namespace) -> int:
    page = page_library.load(project_here()).find(args.page)
    return _print_page(args, "removed", tip_promotion.demote(page))


def _print_page(args: argparse.Namespace, what: str, page: PromotedPage) -> int:
    if args.json:
        print_json(page)
    else:
        print(f"{what} {page.page}: {page.path}")
    return 0


def _strategies(args: argparse.Namespace) -> int:
    op = op_class.classify([args.op]).name if args.op else ""
    rows = [row for row in strategies()
            if (not args.against or (not row.review and re.search(row.against, args.against))
                or (row.symptom and re.search(row.symptom, args.against, re.IGNORECASE)))
            and (not op or not row.ops or op in row.ops)
            and (not args.language or not row.languages or args.language in row.languages)
            and (not args.language or row.on in ("", "cpu" if args.language == "c" else "gpu"))]
    with open_journal(args) as reader:
        records = strategy_record.of_card(reader, args.card)
    listed = tuple(ListedStrategy(
        strategy=row, record=records.get(row.key, NO_RECORD),
        transformations={name: records.get(name, NO_RECORD) for name in row.transformations},
        templates={name: records.get(name, NO_RECORD) for name in row.templates}) for row in rows)
    if args.json:
        print_json(ListedStrategies(gpu=args.card, strategies=listed))
    else:
        print_table(("strategy", "against", "expected", "here", "moves"), (
            (entry.strategy.key, entry.strategy.against or entry.strategy.review or "any limit",
             entry.strategy.gain, str(entry.record), _strategy_text(entry)) for entry in listed))
    if not listed:
        print_note("no strategy fits")
    return 0 if listed else 1


def _strategy_text(entry: ListedStrategy) -> str:
    """Return a row's text and its transformations and templates, with their records."""
    made = [f"{name} ({record})" if record.tried else name
            for name, record in (*entry.transformations.items(), *entry.templates.items())]
    return entry.strategy.text + (f" [{', '.join(made)}]" if made else "")

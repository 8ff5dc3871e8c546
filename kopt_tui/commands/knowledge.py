"""`kopt knowledge`: list, show and search kopt's pages and strategies, and what a worker gets."""

from __future__ import annotations

import argparse
import re
from contextlib import closing

import msgspec

from engine.journal.read import Reader
from engine.knowledge import page_library, page_routing, strategy_record
from engine.knowledge.page_library import Page, PageHit
from engine.knowledge.page_routing import Subject
from engine.knowledge.strategy_record import NO_RECORD, StrategyRecord
from engine.knowledge.strategy_table import StrategyRow, strategies
from engine.routing import op_class
from engine.routing.source_language import KERNEL_TYPES
from kopt_tui.cli.output import print_json, print_note, print_table
from kopt_tui.cli.parser import Parser, add_json, add_workspace, workspace_of


class ListedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page, and the ops, languages and architectures that it is for; empty for all."""

    page: str
    summary: str
    ops: tuple[str, ...]
    languages: tuple[str, ...]
    gpus: tuple[str, ...]


class ListedPages(msgspec.Struct, frozen=True, kw_only=True):
    """All pages."""

    pages: tuple[ListedPage, ...]


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
    """The rows of the table of strategies that fit; `gpu` is the card of the records, "" for all.
    """

    gpu: str
    strategies: tuple[ListedStrategy, ...]


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser, ListedPages)
    parser.set_defaults(action="list")
    actions = parser.add_subparsers(metavar="ACTION", parser_class=Parser)
    actions.add_parser("list", help="list all pages (the default)")
    show = actions.add_parser("show", help="print one page")
    show.add_argument("page", metavar="PAGE", help="its name, such as ops/gemm or sm_90")
    search = actions.add_parser("search", help="print the pages that contain all words")
    search.add_argument("words", metavar="WORD", nargs="+")
    excerpt = actions.add_parser("excerpt", help="print the pages that a worker's prompt contains")
    excerpt.add_argument("--op", metavar="NAME", default="", help="an op, such as matmul")
    excerpt.add_argument("--gpu", metavar="ARCH", default="", help="such as sm_90 or gfx942")
    excerpt.add_argument("--language", metavar="NAME", default="", help="such as triton or hip")
    table = actions.add_parser(
        "strategies", help="print what to try against which limit, and how often it has helped")
    table.add_argument("--against", metavar="LIMIT", default="", help="such as memory")
    table.add_argument("--op", metavar="NAME", default="", help="an op, such as matmul")
    table.add_argument("--language", metavar="NAME", default="", help="such as triton or c")
    table.add_argument("--card", metavar="NAME", default="",
                       help="count the campaigns on this card only, as `kopt status` names it")
    answers = {"list": ListedPages, "show": Page, "search": FoundPages,
               "excerpt": KnowledgeExcerpt, "strategies": ListedStrategies}
    for name, action in actions.choices.items():
        action.set_defaults(action=name)
        add_json(action, answers[name], default=argparse.SUPPRESS)
        add_workspace(action, default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    code: int = {"list": _list, "show": _show, "search": _search, "excerpt": _excerpt,
                 "strategies": _strategies}[args.action](args)
    return code


def _list(args: argparse.Namespace) -> int:
    pages = page_library.pages()
    if args.json:
        print_json(ListedPages(pages=tuple(
            ListedPage(page=page.name, summary=page.head.summary, ops=tuple(page.head.ops),
                       languages=tuple(page.head.languages), gpus=tuple(page.head.gpus))
            for page in pages)))
    else:
        print_table(("page", "about"), ((page.name, page.head.summary) for page in pages))
    return 0


def _show(args: argparse.Namespace) -> int:
    page = page_library.find(args.page)
    if args.json:
        print_json(page)
    else:
        print(page.text.strip())
    return 0


def _search(args: argparse.Namespace) -> int:
    hits = page_library.search(args.words)
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
    subject = Subject(op=op_class.classify([args.op]).name, gpu=args.gpu,
                      language=KERNEL_TYPES.get(args.language, args.language))
    text = page_routing.excerpt(subject)
    if args.json:
        print_json(KnowledgeExcerpt(op=subject.op, excerpt=text, pages=tuple(
            page.name for page in page_routing.relevant(subject))))
    else:
        print(text)
    return 0


def _strategies(args: argparse.Namespace) -> int:
    op = op_class.classify([args.op]).name if args.op else ""
    rows = [row for row in strategies()
            if (not args.against or (not row.review and re.search(row.against, args.against)))
            and (not op or not row.ops or op in row.ops)
            and (not args.language or not row.languages or args.language in row.languages)
            and (not args.language or row.on in ("", "cpu" if args.language == "c" else "gpu"))]
    with closing(Reader(workspace_of(args))) as reader:
        records = strategy_record.of_card(reader, args.card)
    listed = tuple(ListedStrategy(
        strategy=row, record=records.get(row.key, NO_RECORD),
        transformations={name: records.get(name, NO_RECORD) for name in row.transformations},
        templates={name: records.get(name, NO_RECORD) for name in row.templates}) for row in rows)
    if args.json:
        print_json(ListedStrategies(gpu=args.card, strategies=listed))
    else:
        print_table(("strategy", "against", "expected", "here", "moves"), (
            (own.strategy.key, own.strategy.against or own.strategy.review or "any limit",
             own.strategy.gain, str(own.record), _moves(own)) for own in listed))
    if not listed:
        print_note("no strategy fits")
    return 0 if listed else 1


def _moves(own: ListedStrategy) -> str:
    """Return a row's sentence, and what kopt makes of it itself, with its records."""
    made = [f"{name} ({record})" if record.tried else name
            for name, record in (*own.transformations.items(), *own.templates.items())]
    return own.strategy.text + (f" [{', '.join(made)}]" if made else "")

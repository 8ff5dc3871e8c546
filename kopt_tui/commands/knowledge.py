"""`kopt knowledge`: list, show and search kopt's pages, and print what a worker gets of them."""

from __future__ import annotations

import argparse

import msgspec

from engine.knowledge import page_library, page_routing
from engine.knowledge.page_library import Page, PageHit
from engine.knowledge.page_routing import Subject
from engine.routing import op_class
from engine.routing.source_language import KERNEL_TYPES
from kopt_tui.cli.output import print_json, print_note, print_table
from kopt_tui.cli.parser import Parser, add_json, add_workspace


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
    answers = {"list": ListedPages, "show": Page, "search": FoundPages, "excerpt": KnowledgeExcerpt}
    for name, action in actions.choices.items():
        action.set_defaults(action=name)
        add_json(action, answers[name], default=argparse.SUPPRESS)
        add_workspace(action, default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    code: int = {"list": _list, "show": _show, "search": _search, "excerpt": _excerpt}[
        args.action](args)
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

"""Parses C and Python sources with tree-sitter, and describes their top-level items."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from tree_sitter import Language, Node, Parser

from harness.errors import InputError


class EntryFunction(msgspec.Struct, frozen=True, kw_only=True):
    """How a dispatcher calls a function, and the parameters that it can dispatch on."""

    arguments: tuple[str, ...]
    """The function's own parameters, written as the arguments of a call."""
    columns: tuple[str, ...]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One definition or directive at file scope, with a comment on its last line, no other one."""

    begin: int
    end: int
    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    function: str = ""
    """The name of the function that it defines, "" for anything else."""
    head: str = ""
    """The text before the function's name."""
    params: str = ""
    """The text between the parentheses of the function."""
    static: bool = False
    """The function is called from this file only."""
    entry: EntryFunction | None = None
    """None where no dispatcher can call the function with its own parameters."""


def parse(name: str, source: str, is_accepted: Callable[[Node], bool] | None = None) -> Node:
    """Return the root of the syntax tree, its offsets in characters. Raises InputError."""
    ascii_only = re.sub(r"[^\x00-\x7f]", "x", source)  # so that byte and character offsets agree
    root = Parser(_grammar(name)).parse(ascii_only.encode()).root_node
    stack = [root]
    while stack:
        node = stack.pop()
        if not (node.has_error or node.is_missing) or (is_accepted and is_accepted(node)):
            continue
        if node.is_error or node.is_missing:
            raise InputError(f"the source cannot be parsed as {'C' if name == 'c' else 'Python'}",
                             where=f"line {node.start_point.row + 1}",
                             fix="only a source that parses can be split")
        stack.extend(reversed(node.children))
    return root


def walk(node: Node, *, leaves: Collection[str] = ()) -> Iterator[Node]:
    """Yield a node and everything below it, in the source's order; do not enter `leaves`."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        if node.type not in leaves:
            stack.extend(reversed(node.children))


def parts(node: Node, *types: str) -> Iterator[Node]:
    """Yield the nodes that have one of the types, among a node and everything below it."""
    return (part for part in walk(node) if part.type in types)


@functools.cache
def _grammar(name: str) -> Language:
    return Language(importlib.import_module(f"tree_sitter_{name}").language())


def dependents(items: Sequence[Item], names: Iterable[str]) -> list[Item]:
    """Return the items that define or use some of the names, directly or through other items."""
    return _reached(items, set(names), lambda item: item.uses | item.defines,
                    lambda item: item.defines)


def prerequisites(items: Sequence[Item], function: str) -> list[Item]:
    """Return all items that a function needs, itself included, in the source's order."""
    return _reached(items, {function}, lambda item: item.defines, lambda item: item.uses)


def _reached(items: Sequence[Item], known: set[str], needed: Callable[[Item], frozenset[str]],
             added: Callable[[Item], frozenset[str]]) -> list[Item]:
    """Return the items of which a `needed` name is known; each makes its `added` names known."""
    chosen = set[int]()
    while more := [place for place, item in enumerate(items)
                   if place not in chosen and needed(item) & known]:
        chosen.update(more)
        known.update(*(added(items[place]) for place in more))
    return [items[place] for place in sorted(chosen)]


def unneeded(items: Sequence[Item], function: str) -> list[Item]:
    """Return the functions that a function does not need, [] if it is not defined here."""
    needed = {item.begin for item in prerequisites(items, function)}
    return [item for item in items if needed and item.function and item.begin not in needed]

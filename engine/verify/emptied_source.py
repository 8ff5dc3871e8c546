"""A source whose functions still build and return, but compute nothing, for the second canary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tree_sitter import Node

from engine.split.languages.c_language import parse_c
from engine.split.languages.syntax import walk
from engine.transformations.c.parsed_c import kind_of_type
from engine.transformations.transformation import DoesNotApply, Replacement, replaced
from engine.transformations.triton.parsed_triton import ParsedTriton

C_LIKE = (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".cu", ".cuh", ".hip")
KNOWN = (*C_LIKE, ".py")
"""The ends of the names of files in which something can be emptied."""
KEPT = frozenset((
    "main", "ref", "reference", "naive", "baseline", "oracle", "truth", "gold", "golden",
    "expected", "check", "verify", "validate", "compare", "test", "init", "initialize", "setup",
    "make", "create", "generate", "gen", "fill", "seed", "rand", "random", "alloc", "allocate",
    "free", "destroy", "parse", "read", "load", "save", "print", "report", "time", "timer",
    "bench"))
"""Words in the names of functions that prepare or check a run. Without them inputs and reference
would be as empty as the result, and equal to it."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>;{}]|<[^<>;{}]*>)*>")
"""The head of a template, which the grammar of C does not know."""
KERNEL_MARK = "__global__"
"""What a kernel of the device begins with, in CUDA and HIP."""


def emptied(path: str, source: str) -> str | None:
    """Return a source that computes nothing, None if there is nothing in it to empty.

    In C, C++, CUDA and HIP, functions that get a pointer return at once: kernels of the device if
    there are some, else functions that write through a pointer or return a number. What follows
    the `return` stays, so that no compiler complains of unused names. In Triton the bodies of
    kernels become `pass`.
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".py":
        edits = _triton_edits(source)
    elif suffix in C_LIKE:
        edits = _c_edits(source)
    else:
        return None
    return replaced(source, edits) if edits else None


def _triton_edits(source: str) -> list[Replacement]:
    try:
        parsed = ParsedTriton(source)
    except DoesNotApply:
        return []
    return [Replacement(parsed.span(kernel.body[0])[0], parsed.span(kernel.body[-1])[1], "pass")
            for kernel in parsed.kernels.values()]


def _c_edits(source: str) -> list[Replacement]:
    plain = _TEMPLATE.sub(lambda head: re.sub(r"[^\n]", " ", head[0]), source)
    root = parse_c(plain, tolerates_errors=True)
    functions = list(_functions(plain, root))
    kernels = [(body, text) for body, text in functions if _is_kernel(source, body)]
    return [Replacement(body.start_byte + 1, body.start_byte + 1, f" {text} ")
            for body, text in kernels or functions]


def _functions(source: str, root: Node) -> Iterator[tuple[Node, str]]:
    """Yield the body of each function that may be emptied, and the statement that leaves it."""
    for node in walk(root):
        body, declarator, returned = map(
            node.child_by_field_name, ("body", "declarator", "type"))
        if node.type != "function_definition" or body is None or returned is None \
                or declarator is None or declarator.type != "function_declarator" \
                or source[body.start_byte] != "{":
            continue
        name = source[declarator.start_byte:declarator.end_byte].partition("(")[0]
        if KEPT & {word.lower() for word in _WORDS.findall(name)}:
            continue
        result = source[returned.start_byte:returned.end_byte]
        pointers = [parameter for parameter in walk(declarator)
                    if parameter.type == "parameter_declaration" and _is_pointer(parameter)]
        if result == "void" and any(not _is_const(source, pointer) for pointer in pointers):
            yield body, "return;"
        elif kind_of_type(result) and pointers:
            yield body, "return 0;"


def _is_kernel(source: str, body: Node) -> bool:
    assert body.parent is not None  # it was found as the body of a function
    before = max(source.rfind(mark, 0, body.parent.start_byte) for mark in ";}")
    return KERNEL_MARK in source[before + 1:body.start_byte]


def _is_pointer(parameter: Node) -> bool:
    declarator = parameter.child_by_field_name("declarator")
    return declarator is not None and declarator.type in (
        "pointer_declarator", "array_declarator", "abstract_pointer_declarator",
        "abstract_array_declarator")


def _is_const(source: str, parameter: Node) -> bool:
    """Return whether the values that a pointer leads to cannot be written through it."""
    return any(child.type == "type_qualifier"
               and source[child.start_byte:child.end_byte] in ("const", "__const__")
               for child in parameter.children)

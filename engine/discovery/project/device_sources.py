"""Reads CUDA C++, HIP and C++ sources: the functions that can be targets, their arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from engine.discovery.project import cpp_as_c, pointer_roles
from engine.discovery.project.sources import (
    C_TYPES,
    CFunction,
    arguments,
    project_files,
    read_source,
)
from engine.routing import source_language
from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.cuda.device_code import ParsedCuda
from harness.compile.device_code import source_constants
from harness.tasks.target import Arg, Language

OF_CUDA = (".cu", ".cuh")
SUFFIXES = (*OF_CUDA, ".hip", ".cpp", ".cc", ".cxx")
TYPES = C_TYPES | {
    "half": "float16", "__half": "float16", "half2": "float16", "__half2": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "hip_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16", "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2", "float2": "float32", "float4": "float32", "int4": "int32"}
"""A vector has its elements' dtype."""
MOST_NAMED = 3
"""Most files that an advice names."""
_IGNORED = re.compile(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
_FUNCTION = re.compile(
    r"(?:template\s*<(?P<template>[^{};]*?)>\s*)?(?P<head>(?:extern\s*\"C\"\s*)?[A-Za-z_][\w\s*]*?)"
    r"\b(?P<name>\w+)\s*\((?P<parameters>"
    r"(?:[^(){};]|\(\s*\*\s*\w+\s*\)\s*\([^(){};]*\))*)\)\s*\{")
_BLOCK = re.compile(r"extern\s*\"C\"\s*\{")
_STREAM = re.compile(r"\b(?:cudaStream_t|hipStream_t|CUstream)\b|\bvoid\s*\*")
_UNTYPED = re.compile(r"\bvoid\s*\*\s*(?:__restrict__\s*|restrict\s*)?(?P<name>\w+)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"\b(?:cuda|hip)MemcpyToSymbol\w*\s*\(\s*(?:\(\w+\))?\s*&?\s*([A-Za-z_]\w*)")


@dataclass(frozen=True, kw_only=True)
class DeclaredFunction:
    """A function with its body; `is_c` means that C can call it by its name."""

    name: str
    template: str
    head: str
    """What is before its name: its type and qualifiers."""
    parameters: str
    body: str
    is_c: bool
    is_global: bool

    def instance_parameters(self, instance: str) -> str:
        """Return the parameters with an instance's arguments in place of the template's."""
        names = [words[-1] for part in self.template.split(",") if (words := _NAME.findall(part))]
        values = dict(zip(names, instance.strip("<>").split(","), strict=False))
        return _NAME.sub(lambda match: values.get(match[0], match[0]), self.parameters)

    def typed(self, parameters: str) -> str:
        """Return the parameters with the types to which the body casts untyped pointers."""
        def of_cast(match: re.Match[str]) -> str:
            name = match["name"]
            cast = re.search(rf"[(<]\s*(?:const\s+)?(\w+)\s*\*\s*[)>]\s*\(?\s*{name}\b", self.body)
            return match[0].replace("void", cast[1]) if cast else match[0]

        return _UNTYPED.sub(of_cast, parameters)


def language_of(path: str, source: str) -> Language:
    """Return a source's language: HIP for .hip or, unless it is .cu, by HIP names; then CUDA for
    .cu, .cuh or by CUDA's names; else C, whose compiler takes C++ by the file's suffix.
    """
    suffix = PurePosixPath(path).suffix
    of_hip = suffix not in OF_CUDA and re.search(r"\bhip[A-Z]\w+|hip/", source) is not None
    if suffix == ".hip" or of_hip:
        return "hip"
    return "c" if suffix not in OF_CUDA and source_language.detect(source, path) == "c" else "cuda"


def functions(path: str, source: str, program: Sequence[str] = ()) -> list[CFunction]:
    """Return `extern "C"` functions of the host, then `__global__` functions.

    A template counts only where the file, or another text of its program, launches an instance.
    """
    language, text = language_of(path, source), plain_text(source)
    plain_c = cpp_as_c.rewrite(source)
    constants = source_constants.find(source)
    by_name = {each.name: each for each in declared(text)}
    whole = "\n".join([text, *map(plain_text, program)])
    sites = {site.kernel: site for site in reversed(launch_sites(whole, constants))}
    hosts, kernels = list[tuple[CFunction, LaunchSite | None]](), list[CFunction]()
    for each in by_name.values():
        site = sites.get(each.name)
        instance = "" if site is None else site.instance or _deduced(each, site, whole)
        if not (each.is_global or each.is_c) or bool(each.template) != bool(instance):
            continue
        args = _arguments(each.typed(each.instance_parameters(instance)))
        args = args and pointer_roles.with_roles(
            args, plain_c, each.name, ParsedCuda if each.is_global else ParsedC)
        if each.is_global and args:
            kernels.append(CFunction(f"{each.name}{instance}", args, language=language,
                                     is_global=True, constants=constants))
        elif args:
            inner = next((site for site in sites.values()
                          if site.kernel in by_name and f"{site.text}" in each.body), None)
            flags = ("-fopenmp",) if language == "c" and source_language.uses_openmp(source) else ()
            hosts.append((CFunction(each.name, args, language=language, flags=flags), inner))
    by_kernel = {kernel.name: kernel for kernel in kernels}
    return [*(msgspec.structs.replace(host, args=_launcher(host.args, by_kernel, inner))
              for host, inner in hosts), *kernels]


def _deduced(kernel: DeclaredFunction, site: LaunchSite, text: str) -> str:
    """Return the arguments of a template that a launch leaves out, "" if they are not clear.

    They are the types with which the arrays that the launch passes are declared.
    """
    types = dict[str, str]()
    for part, value in zip(split_parts(kernel.parameters), site.values, strict=False):
        found = re.search(rf"\b(\w+)\s*\*[^;(){{}}=<>]*?\b{re.escape(value)}\b", text) \
            if value.isidentifier() else None
        if found and found[1] in TYPES:
            types = {name: found[1] for name in _NAME.findall(part)[:-1]} | types
    names = [_NAME.findall(part)[-1] for part in kernel.template.split(",") if part.strip()]
    return f"<{','.join(types[name] for name in names)}>" if names and all(
        name in types for name in names) else ""


def kernel_files(project: Path) -> list[Path]:
    """Return the project's CUDA and HIP sources that have functions which can be targets."""
    return [path for path in project_files(project) if path.suffix in (".cu", ".hip")
            and functions(path.name, read_source(path))]


def filled_symbols(source: str, kernel: str, program: Sequence[str] = ()) -> list[str]:
    """Return the constant and global arrays that a kernel reads and the host fills before it."""
    text = plain_text(source)
    filled = set(_SYMBOL.findall("\n".join([text, *map(plain_text, program)])))
    functions_of = {each.name: each.body for each in declared(text)}
    waiting, seen = [kernel.partition("<")[0]], set[str]()
    while waiting:
        names = set(_NAME.findall(functions_of.get(waiting.pop(), ""))) - seen
        seen |= names
        waiting += [name for name in names if name in functions_of]
    return sorted(filled & seen)


def extension_advice(source: str, scripts: Mapping[str, str], name: str) -> str:
    """Return what to name in place of a torch extension's source, "" if it is none.

    `scripts` are the project's Python files; those that name the source are named.
    """
    if not re.search(r"torch/extension\.h|\bTORCH_LIBRARY|\bPYBIND11_MODULE|\btorch::Tensor",
                     source):
        return ""
    builders = [path for path, text in scripts.items() if name in text]
    return "it is a torch extension: name the Python function that builds and calls it, " + \
        ", or ".join(f"kopt new {path}:FUNCTION" for path in (builders or ["FILE.py"])[:MOST_NAMED])


def advice(source: str, others: Mapping[str, str]) -> str:
    """Return what a person can do if a source has no function that could be a target.

    `others` are the texts of the project's other files by name. Those with kernels are named, if
    any are those that the source includes, or that define what it launches.
    """
    launched = {site.kernel for site in launch_sites(plain_text(source))}
    with_kernels = {name: found for name, text in others.items() if (found := {
        each.name.partition("<")[0] for each in functions(
            name, text, [source, *others.values()]) if each.is_global})}
    direct = [name for name, found in with_kernels.items()
              if launched & found or f"{PurePosixPath(name).name}\"" in source]
    if names := direct or list(with_kernels):
        return "kernels of its project are in other files: kopt new " + ", or ".join(
            names[:MOST_NAMED])
    host = 'write extern "C" before a function of the host that takes pointers and numbers'
    return f"{host}, or name a __global__ function that is not a template" \
        if "__global__" in source else host


def plain_text(source: str) -> str:
    """Return a source without comments, preprocessor lines and launch bounds."""
    return re.sub(cpp_as_c.BOUNDS, " ", _IGNORED.sub(" ", source))


def declared(text: str) -> Iterator[DeclaredFunction]:
    """Yield the functions that a plain text defines."""
    blocks = [(match.end() - 1, closing(text, match.end() - 1))
              for match in _BLOCK.finditer(text)]
    for match in _FUNCTION.finditer(text):
        head = match["head"].split()
        inside = any(start < match.start() < end for start, end in blocks)
        if match["name"] in ("if", "for", "while", "switch") or "return" in head:
            continue
        body = text[match.end() - 1:closing(text, match.end() - 1) + 1]
        yield DeclaredFunction(
            name=match["name"], template=match["template"] or "",
            head=" ".join(head), parameters=match["parameters"], body=body,
            is_global="__global__" in head, is_c="__global__" not in head
            and "static" not in head and (inside or "extern" in head))


def _arguments(parameters: str) -> tuple[Arg, ...] | None:
    """Return the arguments; None if a type is not known.

    A last parameter that is a stream, or an untyped pointer, which may be one, is left out.
    """
    parts = parameters.split(",")
    if _STREAM.search(parts[-1]):
        parts.pop()
    return arguments(",".join(parts), TYPES)


def _launcher(args: tuple[Arg, ...], kernels: Mapping[str, CFunction],
              site: LaunchSite | None) -> tuple[Arg, ...]:
    """Return a launcher's arguments with their roles in the kernel that it launches."""
    kernel = kernels.get(f"{site.kernel}{site.instance}") if site is not None else None
    if site is None or kernel is None:
        return args
    roles = {value: arg.role for value, arg in zip(site.values, kernel.args, strict=False)}
    return tuple(replace(arg, role=roles.get(arg.name, arg.role)) if arg.role else arg
                 for arg in args)


def closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one at an index."""
    pairs, depth = {"{": "}", "[": "]", "(": ")"}, 0
    opened, closed = text[at], pairs[text[at]]
    for index in range(at, len(text)):
        depth += (text[index] == opened) - (text[index] == closed)
        if depth == 0:
            return index
    return len(text)


_SITE = re.compile(r"\b(?P<kernel>\w+)\s*(?P<instance><[^<>;]*>)?\s*<<<(?P<sizes>.*?)>>>\s*"
                   r"\((?P<values>[^;]*)\)\s*;", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """One launch: the kernel, its template arguments, its text, and the values that it passes."""

    kernel: str
    instance: str
    text: str
    values: tuple[str, ...]


def launch_sites(text: str, known: Collection[str] = ()) -> list[LaunchSite]:
    """Return the launches in a plain text, in their order.

    In template arguments other constants than the known ones are replaced by their numbers.
    """
    return [LaunchSite(
        kernel=match["kernel"], instance=instance_at(match["instance"] or "", text[:match.start()],
                                                     known),
        text=match[0], values=tuple(split_parts(match["values"])))
        for match in _SITE.finditer(text)]


def instance_at(instance: str, before: str, known: Collection[str] = ()) -> str:
    """Return template arguments `<...>`, constants replaced by the last number that a text says."""
    def number(name: re.Match[str]) -> str:
        found = re.findall(rf"\bconst[\w\s]*\b{name[0]}\s*=\s*(\d+)\s*;", before) \
            if name[0] not in known else []
        return found[-1] if found else name[0]

    return _NAME.sub(number, re.sub(r"\s+", "", instance))


def split_parts(text: str) -> list[str]:
    """Return the parts of a text between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]

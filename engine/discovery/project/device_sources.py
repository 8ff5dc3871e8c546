"""Reads CUDA C++, HIP and C++ sources: the functions that can be targets, their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from engine.discovery.project.sources import (
    C_TYPES,
    CFunction,
    arguments,
    project_files,
    read_source,
)
from engine.routing import source_language
from harness.compile.device_code import source_constants
from harness.tasks.target import Arg, Language

SUFFIXES = (".cu", ".hip", ".cpp", ".cc", ".cxx")
TYPES = C_TYPES | {
    "half": "float16", "__half": "float16", "half2": "float16", "__half2": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "hip_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16", "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2", "float2": "float32", "float4": "float32", "int4": "int32"}
"""A vector has its elements' dtype."""
_IGNORED = re.compile(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
_BOUNDS = re.compile(r"\b__launch_bounds__\s*\([^()]*\)")
_FUNCTION = re.compile(
    r"(?:template\s*<(?P<template>[^{};]*?)>\s*)?(?P<head>(?:extern\s*\"C\"\s*)?[A-Za-z_][\w\s*]*?)"
    r"\b(?P<name>\w+)\s*\((?P<parameters>[^(){};]*)\)\s*\{")
_BLOCK = re.compile(r"extern\s*\"C\"\s*\{")
_STREAM = re.compile(r"\b(?:cudaStream_t|hipStream_t|CUstream)\b|\bvoid\s*\*")
_UNTYPED = re.compile(r"\bvoid\s*\*\s*(?:__restrict__\s*|restrict\s*)?(?P<name>\w+)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class DeclaredFunction:
    """A function with its body; `is_c` means that C can call it by its name."""

    name: str
    template: str
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

    def is_read_first(self, name: str) -> bool:
        """Return whether the first use of an array's elements reads or updates them."""
        match = re.search(rf"\b{name}\s*\[", self.body)
        if match is None:
            return False
        after = self.body[closing(self.body, match.end() - 1) + 1:].lstrip()
        value = after.partition(";")[0]
        return not after.startswith("=") or after.startswith("==") or \
            re.search(rf"\b{name}\s*\[", value) is not None


def language_of(path: str, source: str) -> Language:
    """Return a source's language: HIP, CUDA or C, which also stands for C++ without device code.

    The suffixes .hip and .cu decide, otherwise HIP's names, then what `source_language` detects.
    """
    suffix = PurePosixPath(path).suffix
    of_hip = suffix != ".cu" and re.search(r"\bhip[A-Z]\w+|hip/", source) is not None
    if suffix == ".hip" or of_hip:
        return "hip"
    return "c" if suffix != ".cu" and source_language.detect(source, path) == "c" else "cuda"


def functions(path: str, source: str) -> list[CFunction]:
    """Return `extern "C"` functions of the host, then `__global__` functions.

    A template counts only where the file launches an instance of it.
    """
    language, text = language_of(path, source), plain_text(source)
    by_name = {each.name: each for each in declared(text)}
    sites = {site.kernel: site for site in reversed(launch_sites(text))}
    hosts, kernels = list[CFunction](), list[CFunction]()
    for each in by_name.values():
        site = sites.get(each.name)
        instance = site.instance if site is not None else ""
        if not (each.is_global or each.is_c) or bool(each.template) != bool(instance):
            continue
        args = _arguments(each.typed(each.instance_parameters(instance)))
        if each.is_global and args:
            kernels.append(CFunction(
                f"{each.name}{instance}", _roles(args, each, {arg.name: arg.name for arg in args}),
                language=language, is_global=True, constants=source_constants.find(source)))
        elif args:
            inner = next((site for site in sites.values()
                          if site.kernel in by_name and f"{site.text}" in each.body), None)
            flags = ("-fopenmp",) if language == "c" and source_language.uses_openmp(source) else ()
            hosts.append(CFunction(each.name, _launcher(args, by_name, inner), language=language,
                                   flags=flags))
    return hosts + kernels


def kernel_files(project: Path) -> list[Path]:
    """Return the project's CUDA and HIP sources that have functions which can be targets."""
    return [path for path in project_files(project) if path.suffix in (".cu", ".hip")
            and functions(path.name, read_source(path))]


def advice(source: str) -> str:
    """Return what a person can do if a source has no function that could be a target."""
    if re.search(r"torch/extension\.h|\bTORCH_LIBRARY|\bPYBIND11_MODULE|\btorch::Tensor", source):
        return ("it is a torch extension: name the Python function that builds and calls it, "
                "kopt new FILE.py:FUNCTION")
    host = 'write extern "C" before a function of the host that takes pointers and numbers'
    return f"{host}, or name a __global__ function that is not a template" \
        if "__global__" in source else host


def plain_text(source: str) -> str:
    """Return a source without comments, preprocessor lines and launch bounds."""
    return _BOUNDS.sub(" ", _IGNORED.sub(" ", source))


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
            name=match["name"], template=match["template"] or "", parameters=match["parameters"],
            body=body, is_global="__global__" in head, is_c="__global__" not in head
            and "static" not in head and (inside or "extern" in head))


def _arguments(parameters: str) -> tuple[Arg, ...] | None:
    """Return the arguments; None if a type is not known.

    A last parameter that is a stream, or an untyped pointer, which may be one, is left out.
    """
    parts = parameters.split(",")
    if _STREAM.search(parts[-1]):
        parts.pop()
    return arguments(",".join(parts), TYPES)


def _roles(args: Sequence[Arg], kernel: DeclaredFunction, names: dict[str, str],
           ) -> tuple[Arg, ...]:
    """Return the arguments; outputs that the kernel reads before it writes them become inout."""
    return tuple(replace(arg, role="inout") if arg.role == "output" and arg.name in names
                 and kernel.is_read_first(names[arg.name]) else arg for arg in args)


def _launcher(args: tuple[Arg, ...], declared: dict[str, DeclaredFunction],
              site: LaunchSite | None) -> tuple[Arg, ...]:
    """Return a launcher's arguments with their roles in the kernel that it launches."""
    if site is None:
        return args
    kernel = declared[site.kernel]
    inner = [words[-1] for part in kernel.parameters.split(",") if (words := _NAME.findall(part))]
    return _roles(args, kernel, dict(zip(site.values, inner, strict=False)))


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


def launch_sites(text: str) -> list[LaunchSite]:
    """Return the launches in a plain text, in their order."""
    return [LaunchSite(
        kernel=match["kernel"], instance=re.sub(r"\s+", "", match["instance"] or ""),
        text=match[0], values=tuple(split_parts(match["values"])))
        for match in _SITE.finditer(text)]


def split_parts(text: str) -> list[str]:
    """Return the parts of a text between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]

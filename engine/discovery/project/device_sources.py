"""Reads CUDA C++, HIP and C++ sources: functions that can be targets, and their launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from engine.discovery.project.sources import C_TYPES, CFunction, arguments
from engine.routing import source_language
from harness.compile.device_code import source_constants
from harness.formats import expression
from harness.tasks.target import Arg, Language, Launch

SUFFIXES = (".cu", ".hip", ".cpp", ".cc", ".cxx")
TYPES = C_TYPES | {
    "half": "float16", "__half": "float16", "half2": "float16", "__half2": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "hip_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16", "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2", "float2": "float32", "float4": "float32", "int4": "int32",
    "unsigned": "int32", "unsigned int": "int32", "uint32_t": "int32", "bool": "uint8",
    "signed char": "int8", "char": "int8", "long long int": "int64"}
"""A vector has its elements' dtype; unsigned sizes are passed as signed ones of that width."""
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
        after = self.body[_closing(self.body, match.end() - 1) + 1:].lstrip()
        return not after.startswith("=") or after.startswith("==")


def language_of(path: str, source: str) -> Language:
    """Return a source's language: HIP for .hip or, unless it is .cu, by HIP names; then CUDA for
    .cu or by CUDA's names; else C, whose compiler takes C++ by the file's suffix.
    """
    suffix = PurePosixPath(path).suffix
    of_hip = suffix != ".cu" and re.search(r"\bhip[A-Z]\w+|hip/", source) is not None
    if suffix == ".hip" or of_hip:
        return "hip"
    return "c" if suffix != ".cu" and source_language.detect(source, path) == "c" else "cuda"


def functions(path: str, source: str) -> list[CFunction]:
    """Return `extern "C"` functions of the host, then `__global__` functions with their launches.

    A template counts only where the file launches an instance of it.
    """
    language, text = language_of(path, source), _BOUNDS.sub(" ", _IGNORED.sub(" ", source))
    declared = {each.name: each for each in _declared(text)}
    sites = {site.kernel: site for site in reversed(find(text))}
    hosts, kernels = list[CFunction](), list[CFunction]()
    for each in declared.values():
        site = sites.get(each.name)
        instance = site.instance if site is not None else ""
        if not (each.is_global or each.is_c) or bool(each.template) != bool(instance):
            continue
        args = _arguments(each.typed(each.instance_parameters(instance)))
        if each.is_global and args:
            names = [arg.name for arg in args]
            kernels.append(CFunction(
                f"{each.name}{instance}", _roles(args, each, {name: name for name in names}),
                language=language, is_global=True, constants=source_constants.find(source),
                launch=site.launch(names, source) if site is not None else None))
        elif args:
            inner = next((site for site in sites.values()
                          if site.kernel in declared and f"{site.text}" in each.body), None)
            flags = ("-fopenmp",) if language == "c" and source_language.uses_openmp(source) else ()
            hosts.append(CFunction(each.name, _launcher(args, declared, inner), language=language,
                                   flags=flags))
    return hosts + kernels


def advice(source: str) -> str:
    """Return what a person can do if a source has no function that could be a target."""
    if re.search(r"torch/extension\.h|\bTORCH_LIBRARY|\bPYBIND11_MODULE|\btorch::Tensor", source):
        return ("it is a torch extension: name the Python function that builds and calls it, "
                "kopt new FILE.py:FUNCTION")
    host = 'write extern "C" before a function of the host that takes pointers and numbers'
    return f"{host}, or name a __global__ function that is not a template" \
        if "__global__" in source else host


def _declared(text: str) -> Iterator[DeclaredFunction]:
    blocks = [(match.end() - 1, _closing(text, match.end() - 1))
              for match in _BLOCK.finditer(text)]
    for match in _FUNCTION.finditer(text):
        head = match["head"].split()
        inside = any(start < match.start() < end for start, end in blocks)
        if match["name"] in ("if", "for", "while", "switch", "main") or "return" in head:
            continue
        body = text[match.end() - 1:_closing(text, match.end() - 1) + 1]
        yield DeclaredFunction(
            name=match["name"], template=match["template"] or "", parameters=match["parameters"],
            body=body, is_global="__global__" in head, is_c="__global__" not in head
            and "static" not in head and (inside or "extern" in head))


def _arguments(parameters: str) -> tuple[Arg, ...] | None:
    """Return the arguments without a stream at the end; None if a type is not known."""
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


def _closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one at an index."""
    pairs, depth = {"{": "}", "[": "]", "(": ")"}, 0
    opened, closed = text[at], pairs[text[at]]
    for index in range(at, len(text)):
        depth += (text[index] == opened) - (text[index] == closed)
        if depth == 0:
            return index
    return len(text)


MOST_STEPS = 8
_SITE = re.compile(r"\b(?P<kernel>\w+)\s*(?P<instance><[^<>;]*>)?\s*<<<(?P<sizes>.*?)>>>\s*"
                   r"\((?P<values>[^;]*)\)\s*;", re.DOTALL)
_VARIABLE = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\s*(?:=\s*(?:dim3\s*)?(?P<value>[^;=]+)"
                       r"|\((?P<sizes>[^;{}]*)\)|\{(?P<braced>[^;{}]*)\})\s*;")
_CEILING = re.compile(r"\b(?:\w*::)?(?:ceil_?div|cdiv|div_?up|div_?ceil|ceil_?divide)\s*"
                      r"\(([^(),]*),([^(),]*)\)", re.IGNORECASE)
_CAST = re.compile(r"\((?:unsigned(?: int)?|int|size_t|int64_t|uint32_t|long long|long)\)"
                   r"|\bstatic_cast<[^<>]*>")
_SIZES = {"float": 4, "int": 4, "double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2,
          "char": 1, "int64_t": 8, "float4": 16}
_SIZEOF = re.compile(rf"\bsizeof\s*\(\s*({'|'.join(_SIZES)})\s*\)")
_SYMBOL = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """One launch: the kernel, its template arguments, and the texts between the brackets."""

    kernel: str
    instance: str
    text: str
    sizes: tuple[str, ...]
    values: tuple[str, ...]
    variables: Mapping[str, str]

    def launch(self, parameters: Sequence[str], source: str) -> Launch | None:
        """Return the launch in terms of the kernel's parameters and the source's constants.

        Other names, of the function that launches, stay; config classes have to define them.
        Returns None if the launch cannot be expressed.
        """
        passed = {value: name for value, name in zip(self.values, parameters, strict=False)
                  if _SYMBOL.fullmatch(value)}
        known = {name: name for name in source_constants.find(source)} | passed
        try:
            grid, block, *rest = [self._axes(size, known) for size in self.sizes]
        except (ValueError, SyntaxError):
            return None
        launch = Launch(grid=grid, block=block, shared_bytes=rest[0][0] if rest else 0)
        return None if launch.fault() else launch

    def _axes(self, text: str, known: Mapping[str, str]) -> tuple[int | str, ...]:
        """Return the dimensions of a `dim3` or of a number."""
        text = text.strip()
        for _ in range(MOST_STEPS):
            if text in known or text not in self.variables:
                break
            text = self.variables[text].strip()
        text = re.sub(r"^dim3\s*(?=[({])", "", text)
        if re.fullmatch(r"\(.*\)|\{.*\}", text, re.DOTALL) and \
                _closing(text, 0) == len(text) - 1:
            text = text[1:-1]
        return tuple(self._expression(part, known) for part in _parts(text))

    def _expression(self, text: str, known: Mapping[str, str]) -> int | str:
        for _ in range(MOST_STEPS):
            text = _SIZEOF.sub(lambda match: str(_SIZES[match[1]]), _CAST.sub("", text))
            text = _CEILING.sub(lambda match: "(({0} + {1} - 1) / ({1}))".format(
                *map(str.strip, match.groups())), text)
            if all(name in known or name not in self.variables for name in _SYMBOL.findall(text)):
                break
            text = _SYMBOL.sub(lambda match: match[0] if match[0] in known
                             or match[0] not in self.variables
                             else f"({self.variables[match[0]]})", text)
        text = _SYMBOL.sub(lambda match: known.get(match[0], match[0]),
                         source_constants.python_expression(text))
        text = " ".join(text.split())
        expression.parse(text)
        return int(text) if text.isdigit() else text


def find(text: str) -> list[LaunchSite]:
    """Return the launches in a text without comments, in their order."""
    variables = {match["name"]: match["value"] or match["sizes"] or match["braced"] or ""
                 for match in _VARIABLE.finditer(text)}
    return [LaunchSite(
        kernel=match["kernel"], instance=re.sub(r"\s+", "", match["instance"] or ""),
        text=match[0], sizes=tuple(_parts(match["sizes"]))[:3],
        values=tuple(_parts(match["values"])), variables=variables)
        for match in _SITE.finditer(text)]


def _parts(text: str) -> list[str]:
    """Return the parts of a text between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]

"""Find a project's task files and C kernels, with the arguments of their functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.discovery.project import pointer_roles
from engine.routing import source_language
from harness.tasks.target import Arg, Language, Launch

NO_SOURCES = (".git", ".venv", "venv", "node_modules", "workspace", "__pycache__")
"""Folders of a project that hold no sources of its own."""
MAX_DEPTH = 3
MOST_DEEP = 8
"""How deep the modules of a Python package may lie."""
MAX_FILES = 5000
MAX_SOURCE = 1 << 20
MAX_PROGRAMS = 40
PROGRAM_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".h", ".cuh")
BOOLS = ("bool", "_Bool")
C_TYPES = {
    "double": "float64", "float": "float32", "int64_t": "int64", "long": "int64",
    "long long": "int64", "ptrdiff_t": "int64", "size_t": "int64", "int": "int32",
    "int32_t": "int32", "int16_t": "int16", "short": "int16", "int8_t": "int8", "char": "int8",
    "signed char": "int8", "uint8_t": "uint8", "unsigned char": "uint8", "unsigned": "int32",
    "unsigned int": "int32", "uint32_t": "int32", "uint16_t": "int16", "unsigned short": "int16",
    "uint64_t": "int64", "unsigned long": "int64", "unsigned long long": "int64",
    "long long int": "int64", "long int": "int64", "_Float16": "float16",
    **dict.fromkeys(BOOLS, "uint8"),
}
"""Unsigned types of 16 or more bits are passed as signed ones: kopt draws no value that differs."""
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_FUNCTION = re.compile(r"^([A-Za-z_][\w \t*]*?)\b(\w+)\s*\(([^(){};]*)\)\s*\{", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_QUALIFIERS = re.compile(r"\b(?:const|restrict|__restrict__|__restrict|volatile|register)\b")


class CFunction(msgspec.Struct, frozen=True):
    """A function that kopt can call; `args` are in call order.

    A `__global__` function is launched; `launch` is the source's own launch, if it has one.
    """

    name: str
    args: tuple[Arg, ...]
    language: Language = "c"
    is_global: bool = False
    launch: Launch | None = None
    constants: dict[str, int] = {}
    """The whole-number constants of its source."""
    flags: tuple[str, ...] = ()
    """Flags of the compiler that its source needs: for OpenMP pragmas, for headers."""


def task_files(project: Path) -> list[Path]:
    """Return the project's files named task.yaml, the shallowest first."""
    return [path for path in project_files(project) if path.name == "task.yaml"]


def kernel_sources(project: Path) -> list[Path]:
    """Return the C sources with functions; if any of them has knobs, only those with knobs."""
    with_functions = [
        path
        for path in project_files(project)
        if path.suffix == ".c" and c_functions(read_source(path))
    ]
    return [path for path in with_functions if "kopt: knob" in read_source(path)] or with_functions


def uses_triton(project: Path, source: str) -> bool:
    """Return whether a Python source names Triton, or any Python file of its project has kernels.
    """
    return "triton" in source or any(
        "triton.jit" in read_source(path) for path in project_files(project, MOST_DEEP)
        if path.suffix == ".py")


def project_files(project: Path, depth: int = MAX_DEPTH) -> list[Path]:
    """Return files to a depth, shallow ones first; none of NO_SOURCES, `build` or hidden folders.
    """
    files: list[Path] = []
    folders = [project]
    for _ in range(depth):
        below: list[Path] = []
        for folder in folders:
            for path in sorted(folder.iterdir()):
                if path.is_dir() and not path.is_symlink():
                    if path.name not in (*NO_SOURCES, "build") \
                            and not path.name.startswith("."):
                        below.append(path)
                elif path.is_file():
                    files.append(path)
        folders = below
        if len(files) > MAX_FILES:
            break
    return files


def read_source(path: Path) -> str:
    """Return a source's text, "" if it is too large or cannot be read."""
    try:
        return path.read_text(errors="replace") if path.stat().st_size <= MAX_SOURCE else ""
    except OSError:
        return ""


def program_texts(project: Path, path: Path) -> dict[str, str]:
    """Return the texts of the first other C and C++ files of a source's project, by their names."""
    others = [other for other in project_files(project)
              if other.suffix in PROGRAM_SUFFIXES and other != path][:MAX_PROGRAMS]
    return {other.relative_to(project).as_posix(): read_source(other) for other in others}


def scripts(project: Path) -> dict[str, str]:
    """Return the texts of a project's first Python files, by their names."""
    files = [path for path in project_files(project) if path.suffix == ".py"][:MAX_PROGRAMS]
    return {path.relative_to(project).as_posix(): read_source(path) for path in files}


def c_functions(source: str) -> list[CFunction]:
    """Return the non-static functions of a C source whose argument types are known."""
    functions: list[CFunction] = []
    code = _COMMENT.sub(" ", source)
    flags = ("-fopenmp",) if source_language.uses_openmp(code) else ()
    for match in _FUNCTION.finditer(code):
        head, name, parameters = match.groups()
        if "static" in head.split() or name == "main" or not head.strip():
            continue
        if args := arguments(parameters):
            if any(arg.role for arg in args):
                args = pointer_roles.with_roles(args, source, name)
            functions.append(CFunction(name, args, flags=flags))
    return functions


def header_flags(project: Path, *paths: Path) -> tuple[str, ...]:
    """Return `-IFOLDER` for the headers that C sources include and that lie in one other folder."""
    files = [path.relative_to(project).as_posix() for path in project_files(project)]
    flags: dict[str, None] = {}
    for path in paths:
        for name in _INCLUDE.findall(read_source(path)):
            headers = [file for file in files if f"/{file}".endswith(f"/{name}")]
            if len(headers) == 1 and not (path.parent / name).is_file():
                flags[f"-I{headers[0].removesuffix(name).rstrip('/') or '.'}"] = None
    return tuple(flags)


def included_headers(project: Path, source: Path) -> list[Path]:
    """Return the project's headers that a C source includes, also through other headers.

    A name that fits several files of the project is left out.
    """
    files = {f"/{path.relative_to(project).as_posix()}": path for path in project_files(project)}
    headers, unread = list[Path](), [source]
    while unread:
        for name in _INCLUDE.findall(read_source(unread.pop())):
            fitting = [path for file, path in files.items() if file.endswith(f"/{name}")]
            if len(fitting) == 1 and fitting[0] not in (source, *headers):
                headers += fitting
                unread += fitting
    return headers


def refused_parameters(source: str) -> dict[str, str]:
    """Return the first parameter that kopt does not support, by function of a C source."""
    refused: dict[str, str] = {}
    for head, name, parameters in _FUNCTION.findall(_COMMENT.sub(" ", source)):
        parts = [part for part in parameters.split(",") if _argument(part, C_TYPES) is None]
        if parts and head.strip() and "static" not in head.split() and name != "main":
            refused[name] = " ".join(parts[0].split()) or "no parameter"
    return refused


def arguments(parameters: str, types: Mapping[str, str] = C_TYPES) -> tuple[Arg, ...] | None:
    """Return the arguments of a C function; None where a type is not known."""
    args = [_argument(part, types) for part in parameters.split(",")]
    return None if None in args else tuple(arg for arg in args if arg is not None)


def _argument(part: str, types: Mapping[str, str]) -> Arg | None:
    text = _QUALIFIERS.sub(" ", part)
    match = re.fullmatch(r"\s*([\w ]+?)\s*(\**)\s*(\w+)\s*(\[\w*\])?\s*", text)
    dtype = types.get(" ".join(match[1].split())) if match else None
    if match is None or dtype is None or len(match[2]) > 1:
        return None
    name = match[3]
    if match[2] or match[4]:
        if not re.search(r"\bconst\b", part):
            return Arg(name=name, dtype=dtype, shape=(), role="output")
        low, high = (0, 2) if match[1].strip() in BOOLS else (None, None)
        return Arg(name=name, dtype=dtype, shape=(), low=low, high=high)
    is_size = dtype.startswith(("int", "uint"))
    return Arg(name=name, dtype=dtype, value=name if is_size else None)

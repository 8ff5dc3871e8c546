"""Find the kernel that a benchmark measures: files it loads, their build and format commands.

The project's code does not run. A new kernel language adds its suffix to SOURCES or its marker to
KERNEL, and its name to `engine/routing/source_language.py`.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project import cmake
from engine.discovery.project.sources import project_files, read_source
from engine.routing import source_language

BENCH = frozenset(("bench", "benchmark", "benchmarks", "perf", "performance", "measure", "time"))
TEST = frozenset(("test", "tests"))
SOURCES = (".c", ".cu", ".hip", ".cpp", ".cc")
DOCUMENTS = (".md", ".rst", ".txt", ".sh", ".py")
KERNEL = re.compile(r"kopt: knob|@triton\.jit|triton\.language|flydsl|tilelang|__global__|"
                    r"cute\.kernel|ctypes")
MAX_REACHED_FILES = 50
"""Imports are followed until this many files are reached from the script."""


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """The kernel's files, which candidates may change, with their build command and language."""

    files: tuple[str, ...]
    build: str = ""
    language: str = ""


def find_kernel(project: Path, script: str) -> KernelSource:
    """Return the kernel-like files that a benchmark script imports, loads or names.

    If none of them looks like a kernel, all of them are returned.
    """
    source = read_source(project / script)
    folder = (project / script).parent
    near = list(dict.fromkeys(_near(project, folder, source)))
    for path in near:  # the loop extends this list
        if path.suffix == ".py" and len(near) < MAX_REACHED_FILES:
            imported = dict.fromkeys(_near(project, path.parent, read_source(path)))
            near += [other for other in imported if other not in near]
    near = [path for path in near if path.relative_to(project).as_posix() != script]
    likely = [path for path in near if path.suffix in SOURCES or KERNEL.search(read_source(path))]
    script_words = {word for stem in stems(script) for word in words(stem)}
    likely = [path for path in likely if words(path.stem) & script_words] or likely
    tunable = [path for path in likely if "kopt: knob" in read_source(path)]
    sources = [path for path in likely if path.suffix in SOURCES]
    chosen = sorted(tunable or sources or likely or near,
                    key=lambda path: path.name == "__init__.py")  # the first may get knobs
    files = tuple(path.relative_to(project).as_posix() for path in chosen)
    loaders = [source, *(read_source(path) for path in near if path.suffix == ".py")]
    language = source_language.detect(read_source(chosen[0]), chosen[0].name) if chosen else ""
    return KernelSource(files=files, build=_build(project, loaders), language=language)


def format_command(project: Path, files: Sequence[str]) -> str:
    """Return the command that formats some files in the project's style.

    "" if the project has no style for them, or the formatter is not installed.
    """
    settings = read_source(project / "pyproject.toml")
    has_style = (project / ".clang-format").is_file()
    formatters = (("clang-format", "clang-format -i", has_style, SOURCES),
                  ("black", "black -q", "[tool.black]" in settings, (".py",)),
                  ("ruff", "ruff format -q", "[tool.ruff" in settings, (".py",)))
    for tool, command, is_used, suffixes in formatters:
        formatted = [file for file in files if file.endswith(suffixes)]
        if is_used and formatted and shutil.which(tool):
            return f"{command} {' '.join(formatted)}"
    return ""


def stems(script: str) -> Iterator[str]:
    """Yield a script's name without words such as "bench" or "test", if any others remain."""
    parts = re.split(r"[_-]+", PurePosixPath(script).stem)
    remaining = [part for part in parts if part.casefold() not in BENCH | TEST]
    if remaining:
        yield "_".join(remaining)


def words(text: str) -> set[str]:
    """Return the words of a name or path in lower case."""
    return {word.casefold() for word in re.findall(r"[A-Za-z]+", text)}


def string_constants(tree: ast.AST) -> Iterator[str]:
    """Yield the string constants of a source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _near(project: Path, folder: Path, source: str) -> Iterator[Path]:
    """Yield the project's files that a Python source imports, or names in a string."""
    tree, lists = source_language.parse_python(source), cmake.find(project)
    if tree is None:
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
        for name in filter(None, names):
            module = name.replace(".", "/")
            yield from _first_file(project, folder, f"{module}.py", f"{module}/__init__.py")
    for text in string_constants(tree):
        if len(text) < 200 and text.endswith((".so", ".py", *SOURCES)):
            path = PurePosixPath(text)
            if path.suffix != ".so":
                yield from _first_file(project, folder, text)
                continue
            for name in lists.sources_of(text) if lists else ():
                yield from _first_file(project, project, name)
            for suffix in SOURCES:
                yield from _first_file(project, folder, str(path.with_suffix(suffix)))
                yield from _first_file(project, folder, str(path.with_name(
                    f"{path.stem.removeprefix('lib')}{suffix}")))


def _first_file(project: Path, folder: Path, *names: str) -> Iterator[Path]:
    """Yield the first name that is a project file, in the script's folder or the project's."""
    for base in (folder, project):
        for name in names:
            path = (base / name).resolve()
            if path.is_file() and path.is_relative_to(project):
                yield path
                return


def _build(project: Path, loader_sources: Sequence[str]) -> str:
    """Return the command that builds the library a benchmark loads, "" if none is needed or known.
    """
    libraries = [
        name for text in loader_sources for name in re.findall(r"[\"']([^\"'\s]+\.so)[\"']", text)
    ]
    if not libraries or any(re.search(r"subprocess|load_inline|cpp_extension", text)
                            for text in loader_sources):
        return ""
    library = PurePosixPath(libraries[0]).as_posix().removeprefix("./")
    build = re.compile(rf"((?:cc|gcc|clang|nvcc|hipcc) [^\n`#]*-o {re.escape(library)}[^\n`#]*)")
    for path in project_files(project):
        match = build.search(read_source(path)) if path.suffix in DOCUMENTS else None
        if match:
            return match[1].strip().rstrip("'\".")
    if (project / "Makefile").is_file():
        return "make"
    folder = PurePosixPath(library).parts[0]
    if re.fullmatch(r"\w[\w.-]*", folder) and folder != library \
            and (project / cmake.LISTS).is_file():
        return cmake.build(folder)
    sources = sorted((project / library).parent.glob("*.c"))
    files = [path.relative_to(project).as_posix() for path in sources
             if not re.search(r"\bmain\s*\(", read_source(path))]
    return f"cc -O2 -shared -fPIC -o {library} {' '.join(files)} -lm" if files else ""

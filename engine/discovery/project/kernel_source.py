"""What a benchmark measures: the files that it loads and that look like a kernel, how they are
built and formatted. Read from the sources alone.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project import sources as infer

BENCH = frozenset(("bench", "benchmark", "benchmarks", "perf", "performance", "measure", "time"))
TEST = frozenset(("test", "tests"))
SOURCES = (".c", ".cu", ".hip", ".cpp", ".cc")
DOCUMENTS = (".md", ".rst", ".txt", ".sh", ".py")
KERNEL = re.compile(r"kopt: knob|@triton\.jit|triton\.language|flydsl|tilelang|__global__|"
                    r"cute\.kernel|ctypes")
MOST_NEAR = 50
"""Files that are looked at for the kernel, from the script on."""


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """What the benchmark measures: files that candidates may change, and how they are built."""

    files: tuple[str, ...]
    build: str = ""
    language: str = ""


def kernel(project: Path, script: str) -> KernelSource:
    """Return what a benchmark script imports, loads or names that looks like a kernel."""
    source = infer.read(project / script)
    folder = (project / script).parent
    near = list(dict.fromkeys(_near(project, folder, source)))
    for path in near:  # which grows
        if path.suffix == ".py" and len(near) < MOST_NEAR:
            near += [one for one in dict.fromkeys(_near(project, path.parent, infer.read(path)))
                     if one not in near]
    near = [path for path in near if path.relative_to(project).as_posix() != script]
    likely = [path for path in near if path.suffix in SOURCES or KERNEL.search(infer.read(path))]
    told = {word for stem in stems(script) for word in words(stem)}
    likely = [path for path in likely if words(path.stem) & told] or likely
    knobs = [path for path in likely if "kopt: knob" in infer.read(path)]
    sources = [path for path in likely if path.suffix in SOURCES]
    chosen = knobs or sources or likely or near
    files = tuple(path.relative_to(project).as_posix() for path in chosen)
    loaders = [source, *(infer.read(path) for path in near if path.suffix == ".py")]
    return KernelSource(files=files, build=_build(project, loaders), language=_language(chosen))


def format_command(project: Path, files: Sequence[str]) -> str:
    """Return a command that formats these files as the project does, "" where none is here."""
    said = infer.read(project / "pyproject.toml")
    ways = (("clang-format", "clang-format -i", (project / ".clang-format").is_file(), SOURCES),
            ("black", "black -q", "[tool.black]" in said, (".py",)),
            ("ruff", "ruff format -q", "[tool.ruff" in said, (".py",)))
    for tool, command, is_used, suffixes in ways:
        mine = [file for file in files if file.endswith(suffixes)]
        if is_used and mine and shutil.which(tool):
            return f"{command} {' '.join(mine)}"
    return ""


def stems(script: str) -> Iterator[str]:
    """Yield what a script's name says beside that it is a benchmark."""
    parts = re.split(r"[_-]+", PurePosixPath(script).stem)
    left = [part for part in parts if part.casefold() not in BENCH | TEST]
    if left:
        yield "_".join(left)


def words(text: str) -> set[str]:
    """Return the words of a name or path, small."""
    return {word.casefold() for word in re.findall(r"[A-Za-z]+", text)}


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that a source holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _near(project: Path, folder: Path, source: str) -> Iterator[Path]:
    """Yield the project's files that a Python source imports, or names in a text."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
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
            yield from _there(project, folder, f"{module}.py", f"{module}/__init__.py")
    for text in texts(tree):
        if len(text) < 200 and text.endswith((".so", ".py", *SOURCES)):
            path = PurePosixPath(text)
            if path.suffix != ".so":
                yield from _there(project, folder, text)
                continue
            for suffix in SOURCES:
                yield from _there(project, folder, str(path.with_suffix(suffix)))
                yield from _there(project, folder, str(path.with_name(
                    f"{path.stem.removeprefix('lib')}{suffix}")))


def _there(project: Path, folder: Path, *names: str) -> Iterator[Path]:
    """Yield the first of some names that is a file of the project, beside the script or above."""
    for base in (folder, project):
        for name in names:
            path = (base / name).resolve()
            if path.is_file() and path.is_relative_to(project):
                yield path
                return


def _build(project: Path, texts: Sequence[str]) -> str:
    """Return what builds the library that a benchmark loads, "" where it needs no command."""
    libraries = [name for text in texts for name in re.findall(r"[\"']([^\"'\s]+\.so)[\"']", text)]
    if not libraries or any(re.search(r"subprocess|load_inline|cpp_extension", text)
                            for text in texts):
        return ""
    library = PurePosixPath(libraries[0]).as_posix().removeprefix("./")
    told = re.compile(rf"((?:cc|gcc|clang|nvcc|hipcc) [^\n`#]*-o {re.escape(library)}[^\n`#]*)")
    for path in infer.files(project):
        found = told.search(infer.read(path)) if path.suffix in DOCUMENTS else None
        if found:
            return found[1].strip().rstrip("'\".")
    if (project / "Makefile").is_file():
        return "make"
    beside = sorted((project / library).parent.glob("*.c"))
    files = [path.relative_to(project).as_posix() for path in beside
             if not re.search(r"\bmain\s*\(", infer.read(path))]
    return f"cc -O2 -shared -fPIC -o {library} {' '.join(files)} -lm" if files else ""


def _language(chosen: Sequence[Path]) -> str:
    if not chosen:
        return ""
    suffix, source = chosen[0].suffix, infer.read(chosen[0])
    if suffix in SOURCES:
        return {".c": "c", ".cu": "cuda"}.get(suffix, "hip")
    return next((name for name in ("flydsl", "tilelang", "triton") if re.search(
        rf"\bimport {name}|\bfrom {name}", source)), "python")

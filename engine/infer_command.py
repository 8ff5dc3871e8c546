"""What a project tells about its own benchmark: the script, its CSV, the kernel that it measures.

Read from the sources alone; nothing of the project is run. What a real run adds is in `guess`.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine import columns, infer
from harness.text import plain

WRITES = re.compile(r"csv\.(?:Dict)?[Ww]riter|\.to_csv\(|\.csv[\"'][^\n]*[\"']w")
BENCH = frozenset(("bench", "benchmark", "benchmarks", "perf", "performance", "measure", "time"))
TEST = frozenset(("test", "tests"))
SOURCES = (".c", ".cu", ".hip", ".cpp", ".cc")
DOCUMENTS = (".md", ".rst", ".txt", ".sh", ".py")
KERNEL = re.compile(r"kopt: knob|@triton\.jit|triton\.language|flydsl|tilelang|__global__|"
                    r"cute\.kernel|ctypes")
MOST_NEAR = 50
"""Files that are looked at for the kernel, from the script on."""
_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A script that writes a CSV; `columns` are those known without running it."""

    script: str
    csv: str
    columns: tuple[str, ...] = ()
    quick: bool = False

    @property
    def command(self) -> str:
        return f"python {self.script}"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What the benchmark measures: files that candidates may change, and how they are built."""

    files: tuple[str, ...]
    build: str = ""
    language: str = ""


def benchmarks(project: Path) -> list[Benchmark]:
    """Return the scripts that write a CSV with a time or rate in it, the likeliest first."""
    found = []
    for path in infer.files(project):
        source = infer.read(path) if path.suffix == ".py" else ""
        if not WRITES.search(source) or path.name == "quick_test_bench.py":
            continue
        made = benchmark(project, path.relative_to(project).as_posix(), source)
        found.append((_likely(made), made))
    return [made for score, made in sorted(found, key=lambda pair: -pair[0]) if score > 0]


def benchmark(project: Path, script: str, source: str) -> Benchmark:
    """Return what a script's text says of its CSV."""
    try:
        tree: ast.AST = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module(body=[], type_ignores=[])
    name = _csv(tree)
    header = _header(project / name) if name else ()
    return Benchmark(script=script, csv=name, columns=header or _written(tree),
                     quick="--quick" in source)


def kernel(project: Path, script: str) -> Kernel:
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
    told = {word for stem in _stems(script) for word in _words(stem)}
    likely = [path for path in likely if _words(path.stem) & told] or likely
    knobs = [path for path in likely if "kopt: knob" in infer.read(path)]
    sources = [path for path in likely if path.suffix in SOURCES]
    chosen = knobs or sources or likely or near
    files = tuple(path.relative_to(project).as_posix() for path in chosen)
    texts = [source, *(infer.read(path) for path in near if path.suffix == ".py")]
    return Kernel(files=files, build=_build(project, texts), language=_language(chosen))


def test_command(project: Path, script: str, files: Sequence[str]) -> str:
    """Return a command that runs the project's tests of these files, "" where there are none."""
    stems = {PurePosixPath(file).stem for file in files}
    for path in infer.files(project):
        name = path.relative_to(project).as_posix()
        if path.suffix != ".py" or name == script or not _words(path.stem) & TEST:
            continue
        source = infer.read(path)
        if not any(re.search(rf"\b{re.escape(stem)}\b", source) for stem in stems):
            continue
        alone = "__main__" in source or not re.search(r"^(?:async )?def test_", source, re.M)
        return f"python {name}" if alone else f"python -m pytest -q {name}"
    return ""


def op(script: str, files: Sequence[str], project: Path) -> str:
    """Return the operator's name: what the script's says, else the kernel's, else the project's."""
    named = [*_stems(script), *(PurePosixPath(file).stem for file in files), project.name]
    return next((name for name in named if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name)), "op")


def _stems(script: str) -> Iterator[str]:
    parts = re.split(r"[_-]+", PurePosixPath(script).stem)
    left = [part for part in parts if part.casefold() not in BENCH | TEST]
    if left:
        yield "_".join(left)


def _likely(made: Benchmark) -> float:
    named = _words(made.script)
    timed = any(columns.cost_unit(name) for name in made.columns)
    return (2.0 * bool(named & BENCH) + 1.0 * bool(named & TEST) + 3.0 * timed + bool(made.csv)
            if timed or named & (BENCH | TEST) else 0.0)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[A-Za-z]+", text)}


def _csv(tree: ast.AST) -> str:
    """Return the CSV that a script writes: the one it opens to write, else the first it names."""
    named = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else \
            node.func.id if isinstance(node.func, ast.Name) else ""
        texts = [text for part in (*node.args, *(word.value for word in node.keywords))
                 for text in _texts(part)]
        found = [text for text in texts if text.endswith(".csv")]
        if found and (name == "to_csv" or (name == "open" and {"w", "wt"} & set(texts))):
            return found[0]
        named += found
    anywhere = [text for text in _texts(tree) if text.endswith(".csv")]
    return next((text for text in (*named, *anywhere) if _inside(text)), "")


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.stem) and not path.is_absolute() and ".." not in path.parts


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _written(tree: ast.AST) -> tuple[str, ...]:
    """Return the names of columns in the largest literal that holds a time or a rate."""
    best: tuple[str, ...] = ()
    for node in ast.walk(tree):
        names: tuple[str, ...] = ()
        if isinstance(node, ast.Dict):
            names = tuple(key.value for key in node.keys
                          if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(node, ast.List | ast.Tuple):
            names = tuple(item.value for item in node.elts
                          if isinstance(item, ast.Constant) and isinstance(item.value, str))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
                and node.func.id == "dict":
            names = tuple(word.arg for word in node.keywords if word.arg)
        if len(names) > len(best) and any(columns.cost_unit(name) for name in names):
            best = names
    return tuple(plain(name, 80) for name in dict.fromkeys(best))


def _header(path: Path) -> tuple[str, ...]:
    """Return the header of a CSV that an earlier run left, empty if there is none."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            line = file.readline(_HEADER_BYTES)
        names = next(csv.reader([line]), [])
    except (OSError, csv.Error):
        return ()
    return tuple(plain(name.strip(), 80) for name in names if name.strip())


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
    for text in _texts(tree):
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

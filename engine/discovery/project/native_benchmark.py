"""Find a benchmark that is no Python script: a target of make or CMake, a shell script, a program.

What it prints goes to a file, from which the harness reads rows (`harness/child/printed_rows`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project import cmake, sources
from engine.discovery.project.kernel_source import KernelSource
from engine.routing import source_language

PRINTED = "benchmark.txt"
"""The file to which the benchmark's output goes."""
OF_CMAKE = f"./{cmake.FOLDER}/PROGRAM > {PRINTED}"
"""The command of a benchmark that CMake builds; PROGRAM stands for its name."""
TARGETS = ("bench", "benchmark", "run")
TESTS = ("test", "check")
SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip")
_RULE = re.compile(r"^([\w.-]+(?:[ \t]+[\w.-]+)*)[ \t]*::?(?!=)", re.MULTILINE)
_MAIN = re.compile(r"^[ \t]*(?:int|auto)\s+main\s*\(", re.MULTILINE)
_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_CLOCK = re.compile(r"clock_gettime|gettimeofday|\bclock\s*\(|omp_get_wtime|chrono|"
                    r"EventElapsedTime")


@dataclass(frozen=True, kw_only=True)
class NativeBenchmark:
    """A command that prints times, the files that it measures, its build and its test.

    `command` is empty for a CMake project that does not say where its measuring program lies.
    """

    command: str
    origin: str
    kernel: KernelSource
    test: str = ""
    frozen: tuple[str, ...] = ()
    """The files that build and measure, which no run may change."""
    mixed: str = ""
    """The file that holds both the kernel and the measuring program, "" if they are apart."""

    @property
    def printed_command(self) -> str:
        return f"{self.command} > {PRINTED}" if self.command else ""


def find(project: Path) -> NativeBenchmark | None:
    """Return the project's benchmark: by make, a shell script, or a program that has a clock."""
    texts = {path: sources.read_source(path) for path in sources.project_files(project)
             if path.suffix in SUFFIXES}
    programs = [path for path, text in texts.items() if _MAIN.search(text)]
    timed = [path for path in programs if _CLOCK.search(texts[path])]
    program = next(iter(timed or programs), None)
    kernels = [path for path in texts if path not in programs and path.parent.name not in TESTS]
    if program and not kernels:  # a library of headers
        headers = {path: sources.read_source(path)
                   for path in sources.included_headers(project, program)}
        kernels = [path for path, text in headers.items() if _LOOP.search(text)]
        texts |= headers
    tunable = [path for path in kernels if "kopt: knob" in texts[path]]
    makefile = next((path for name in ("GNUmakefile", "makefile", "Makefile")
                     if (path := project / name).is_file()), None)
    lines = _RULE.findall(sources.read_source(makefile)) if makefile else []
    rules = [name for names in lines for name in names.split() if not name.startswith(".")]
    target = next((name for name in TARGETS if name in rules), "")
    script = next((name for stem in TARGETS if (project / (name := f"{stem}.sh")).is_file()), "")
    build = "make" if rules and rules[0] not in (*TARGETS, *TESTS, "clean") else ""
    project_cmake = cmake.find(project)
    test = next((f"make -s {name}" for name in TESTS if name in rules), "")
    frozen = [_name(path, project) for path in (makefile, *programs) if path]
    if target:
        command, origin = f"make -s {target}", f"a target of {makefile.name}" if makefile else ""
    elif script:
        text = sources.read_source(project / script)
        command, origin = f"{'bash' if 'bash' in text[:40] else 'sh'} {script}", "by its name"
    elif timed and program and not rules and project_cmake:
        of_program, command = project_cmake.program(PurePosixPath(_name(program, project)))
        origin = f"{_name(program, project)} reads a clock"
        build, test = cmake.build(target=of_program), project_cmake.test
        frozen += project_cmake.files
    elif timed and program and not rules:
        command, origin = f"./{program.stem}", f"{_name(program, project)} reads a clock"
        build = _compile(project, program, kernels)
    else:
        return None
    chosen = tunable or kernels
    first = chosen[0] if chosen else None
    return NativeBenchmark(
        command=command, origin=origin,
        mixed=_name(program, project) if program and not kernels else "",
        frozen=tuple(frozen), test=test,
        kernel=KernelSource(
            files=tuple(_name(path, project) for path in chosen), build=build,
            language=source_language.detect(texts[first], first.name) if first else ""))


def _compile(project: Path, program: Path, kernels: list[Path]) -> str:
    """Return the command that builds a program from its source and those of the kernels."""
    files = [program, *(path for path in kernels if path.suffix in SUFFIXES)]
    suffixes = {path.suffix for path in files}
    compiler = "nvcc" if ".cu" in suffixes else "hipcc" if ".hip" in suffixes else \
        "cc" if suffixes == {".c"} else "c++"
    openmp = ["-fopenmp"] if any(source_language.uses_openmp(sources.read_source(path))
                                 for path in files) else []
    names = [shlex.quote(_name(path, project)) for path in files]
    flags = map(shlex.quote, (*openmp, *sources.header_flags(project, *files)))
    return " ".join([compiler, "-O2", *flags, "-o", program.stem, *names, "-lm"])


def _name(path: Path, project: Path) -> str:
    return PurePosixPath(path.relative_to(project)).as_posix()

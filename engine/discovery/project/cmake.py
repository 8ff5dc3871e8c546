"""Read a project's CMakeLists.txt files: its build, and where that puts a program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project.sources import project_files, read_source

LISTS = "CMakeLists.txt"
FOLDER = "build/kopt"
"""Where a program is built: kopt freezes the files of a folder that a measuring command names, so
this is not the person's own build folder."""
_LIBRARY = re.compile(r"\badd_library\s*\(\s*([\w.+-]+)\s+([^()]*)\)", re.IGNORECASE)
_COMMENT = re.compile(r"#[^\n]*")
_PROGRAM = re.compile(r"\badd_executable\s*\(\s*([\w.+-]+)\s+([^()]*)\)", re.IGNORECASE)
_MOVED = re.compile(r"RUNTIME_OUTPUT_DIRECTORY|EXECUTABLE_OUTPUT_PATH|OUTPUT_NAME|SUFFIX\b")
_TESTS = re.compile(r"\badd_test\s*\(", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CMakeProject:
    """The texts of a project's CMakeLists.txt files, without comments, by path."""

    texts: Mapping[PurePosixPath, str]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path.as_posix() for path in self.texts)

    @property
    def test(self) -> str:
        """Return the command that builds and runs the project's tests, "" if it has none."""
        has_tests = any(map(_TESTS.search, self.texts.values()))
        return f"cmake --build {FOLDER} && ctest --test-dir {FOLDER} --output-on-failure" \
            if has_tests else ""

    def program(self, source: PurePosixPath) -> tuple[str, str]:
        """Return the target of the program that a source is part of, and the program's path.

        A single program is taken even if no file names the source as its part. Returns ("", "") if
        it is not clear which program it is, or if the project sets where its programs go.
        """
        programs = [(path.parent, name, words.split()) for path, text in self.texts.items()
                    for name, words in _PROGRAM.findall(text)]
        named = [entry for entry in programs
                 if source.name in {PurePosixPath(word.strip('"')).name for word in entry[2]}]
        if len(chosen := named or programs) != 1 or any(map(_MOVED.search, self.texts.values())):
            return "", ""
        folder, name, _ = chosen[0]
        return name, f"./{PurePosixPath(FOLDER, folder, name)}"

    def sources_of(self, library: str) -> tuple[str, ...]:
        """Return the paths of the sources that make a library, such as `build/libname.so`."""
        stem = PurePosixPath(library).name.partition(".")[0].removeprefix("lib")
        return tuple(
            (path.parent / word).as_posix() for path, text in self.texts.items()
            for name, words in _LIBRARY.findall(text) if name == stem for word in words.split())


def build(folder: str = FOLDER, target: str = "") -> str:
    """Return the command that builds a target, or all, into a folder.

    CMake refuses a cache that was copied with the project, as it names another folder.
    """
    return f"rm -f {folder}/CMakeCache.txt && cmake -S . -B {folder} -DCMAKE_BUILD_TYPE=Release " \
        f"&& cmake --build {folder}" + (f" --target {target}" if target else "")


def find(project: Path) -> CMakeProject | None:
    """Return what the CMakeLists.txt files of a project say, None if its root has none."""
    texts = {PurePosixPath(path.relative_to(project)): _COMMENT.sub("", read_source(path))
             for path in project_files(project) if path.name == LISTS}
    return CMakeProject(texts=texts) if PurePosixPath(LISTS) in texts else None

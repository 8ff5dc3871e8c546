"""A failed command is reported by the line of its output that says why it failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.isolation.process_outcome import ProcessOutcome


def outcome(folder: Path, *command: str) -> ProcessOutcome:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return ProcessOutcome(ended="exit", returncode=done.returncode, stdout=done.stdout,
                          stderr=done.stderr)


@pytest.mark.parametrize(("recipe", "reason"), [
    ("cc -c a.c", "error: "), ("no-such-compiler -c a.c", "no-such-compiler: ")])
def test_reason_of_a_failed_build_is_the_error_above_makes_summary(recipe: str, reason: str,
                                                                   tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) {\nreturn x + y;\n}\n")
    (tmp_path / "Makefile").write_text(f"all:\n\t{recipe}\n")
    assert reason in outcome(tmp_path, "make").reason_line


@pytest.mark.parametrize(("program", "clue"), [
    ("print('malloc(): corrupted top size', file=sys.stderr)\nos.abort()",
     " in mine.py:4, work: malloc(): corrupted top size; memory is damaged, as by a write outside "
     "a tensor: check bounds and masks"),
    ("print('x.cc:7: Assertion `n > 0\\' failed.\\nsome noise', file=sys.stderr)\nos.abort()",
     " in mine.py:4, work: x.cc:7: Assertion `n > 0' failed."),
    ("os.abort()", " in mine.py:3, work"), ("sys.exit('an error')", "")])
def test_crash_clue_has_line_and_last_error(program: str, clue: str, tmp_path: Path) -> None:
    body = program.replace("\n", "\n    ")
    (tmp_path / "mine.py").write_text(f"import os, sys\ndef work():\n    {body}\nwork()\n")
    done = outcome(tmp_path, sys.executable, "-X", "faulthandler", "mine.py")
    assert done.crash_clue == clue


def test_reason_defaults_to_the_last_line_of_stderr(tmp_path: Path) -> None:
    assert outcome(tmp_path, "sh", "-c", "echo a; echo b >&2; echo c; exit 1").reason_line == "b"
    assert outcome(tmp_path, "true").reason_line == ""


@pytest.mark.parametrize("line", [
    "main.c:(.text+0xfe): undefined reference to `sqrtf'", "/usr/bin/ld: cannot find -lk",
    "CMake Error at CMakeLists.txt:3 (find_package):", "src/k.c:1:10: fatal error: k.h: missing"])
def test_reason_is_the_first_error_of_a_build(line: str, tmp_path: Path) -> None:
    (tmp_path / "printed").write_text(f"[ 50%] Linking k\n{line}\ncollect2: error: ld returned 1\n")
    assert outcome(tmp_path, "sh", "-c", "cat printed >&2; exit 1").reason_line == line

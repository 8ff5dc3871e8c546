"""What a failed command is quoted with is the line that says why it failed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.isolation.process_outcome import ProcessOutcome


def outcome(folder: Path, *command: str) -> ProcessOutcome:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return ProcessOutcome(ended="exit", returncode=done.returncode, stdout=done.stdout,
                          stderr=done.stderr)


@pytest.mark.parametrize(("recipe", "reason"), [
    ("cc -c a.c", "error: "), ("no-such-compiler -c a.c", "no-such-compiler: ")])
def test_reason_of_a_failed_build_is_not_makes_summary(recipe: str, reason: str,
                                                       tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) {\nreturn x + y;\n}\n")
    (tmp_path / "Makefile").write_text(f"all:\n\t{recipe}\n")
    assert reason in outcome(tmp_path, "make").reason_line


def test_reason_is_else_the_last_line(tmp_path: Path) -> None:
    assert outcome(tmp_path, "sh", "-c", "echo a; echo b >&2; echo c; exit 1").reason_line == "b"
    assert outcome(tmp_path, "true").reason_line == ""

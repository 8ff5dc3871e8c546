"""The real command refuses or judges what is wrong in a manifest, a task or a candidate."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import mutations, repos
from tests.support.engines import campaigns
from tests.support.programs.evaluate_entry import PATCH, TASK, judged


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a valid manifest of a valid project."""
    return campaigns.project(tmp_path_factory.mktemp("plain") / "p")


def real(*words: object) -> tuple[int, Any]:
    """Run the real command to its end."""
    code, out, err = campaigns.command("evaluate", *map(str, words), "--json",
                                       workspace=Path("nowhere"))
    return code, judged(code, out, err)


@pytest.mark.parametrize("text", [
    b"", b"\xff\xfe\0", b"[" * 100_000, b"target_op: &a x\ntarget_lang: *a\n",
    b"target_op: " + b"x" * 200_000, b'target_op: "\\U00110000"\n',
    b'target_op: a\ntarget: {task: "\\ud800"}\n'],
    ids=["empty", "binary", "deep", "alias", "long", "beyond-unicode", "surrogate"])
def test_real_command_refuses_a_bad_manifest(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.yaml").write_bytes(text)
    assert real(tmp_path / "bad.yaml")[0] == 2


@pytest.mark.parametrize("text", [
    b"\xc3(", mutations.as_yaml({**TASK, "args": []}),
    mutations.as_yaml({**TASK, "classes": [{"name": "huge", "shape": {"n": 2**62}}]}),
    mutations.as_yaml({**TASK, "reference": "../../etc/passwd"})],
    ids=["binary", "no-arguments", "huge", "outside"])
def test_real_command_refuses_a_bad_task(tmp_path: Path, text: bytes) -> None:
    manifest = campaigns.project(tmp_path / "p")
    manifest.with_name("task.yaml").write_bytes(text)
    repos.git(manifest.parent, "commit", "-q", "-a", "-m", "another task")
    assert real(manifest)[0] == 2


@pytest.mark.parametrize(("words", "code"), [
    (("--config", "{"), 2), (("--config", '{"PASSES": 3}'), 1), (("--config", "\udcff"), 2),
    (("--patch", "missing"), 2), (("--patch", "bad.patch"), 1), (("--ref", "nowhere"), 1)],
    ids=["torn", "no-choice", "no-text", "missing", "torn-patch", "no-commit"])
def test_real_command_refuses_a_bad_candidate(plain: Path, tmp_path: Path,
                                              words: tuple[str, str], code: int) -> None:
    (tmp_path / "bad.patch").write_text(PATCH.replace("-#define", "-#undef"))
    flag, word = words
    assert real(plain, flag, tmp_path / word if flag == "--patch" else word)[0] == code


@pytest.mark.parametrize(("kernel", "words"), [
    pytest.param("void scale( {\n", "does not compile", id="torn", marks=pytest.mark.slow),
    pytest.param(campaigns.KERNEL.replace("x[i] * 2.0f", "*(volatile float *)0"), "SIGSEGV",
                 id="crash", marks=pytest.mark.slow),
    pytest.param(campaigns.KERNEL.replace("2.0f", "3.0f"), "", id="wrong")])
def test_real_command_judges_a_bad_candidate(plain: Path, tmp_path: Path, kernel: str,
                                             words: str) -> None:
    """The whole evaluation runs, since only the candidate is bad."""
    path = tmp_path / "bad.patch"
    path.write_text("".join(difflib.unified_diff(
        campaigns.KERNEL.splitlines(True), kernel.splitlines(True), "a/scale.c", "b/scale.c")))
    code, verdict = real(plain, "--patch", path)
    assert code == 1 and not verdict["correct"]
    assert verdict["valid"] == (not words) and words in (verdict["rejected_reason"] or "")


@pytest.mark.parametrize("option", ["--candidate", "--patch"])
def test_binary_source_is_refused_and_never_judged_as_unchanged(
        option: str, plain: Path, tmp_path: Path) -> None:
    path, source = tmp_path / "given", plain.with_name("scale.c")
    text = source.read_bytes()
    path.write_bytes(text + b"//\0\n")
    if option == "--patch":
        source.write_bytes(path.read_bytes())
        path.write_bytes(subprocess.run(["git", "diff", "--binary"], cwd=plain.parent,
                                        check=True, capture_output=True).stdout)
        source.write_bytes(text)
    code, verdict = real(plain, option, path)
    assert code == 1 and not verdict["valid"]
    assert "every file of it was left out: scale.c (binary)" in verdict["rejected_reason"]


def test_verdict_names_a_header_that_edit_excludes_and_what_to_add(
        plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "header.patch"
    with_header = '#include "tile.h"\n' + campaigns.KERNEL
    path.write_text("".join([
        *difflib.unified_diff(campaigns.KERNEL.splitlines(True), with_header.splitlines(True),
                              "a/scale.c", "b/scale.c"),
        "--- /dev/null\n", "+++ b/tile.h\n", "@@ -0,0 +1 @@\n", "+#define TILE 8\n"]))
    code, verdict = real(plain, "--patch", path)
    assert code == 1 and "tile.h" in verdict["rejected_reason"]
    [note] = [note for note in verdict["notes"] if "tile.h" in note]
    assert "not included in `edit`" in note and "edit: [..., tile.h]" in note


@pytest.mark.slow
@pytest.mark.parametrize(("words", "effort", "most"), [
    ((), "normal", 18), (("--quick",), "quick", 5), (("--thorough",), "thorough", 36)])
def test_effort_of_a_verdict_is_chosen_and_stated(words: tuple[str, ...], effort: str, most: int,
                                                  plain: Path) -> None:
    code, verdict = real(plain, "--alpha", "0.05", *words)
    assert code == 0 and verdict["effort"] == effort
    assert all(2 <= row["pairs"] <= most for row in verdict["rows"])
    stated = [note for note in verdict["notes"] if note.startswith(("quick: ", "thorough: "))]
    assert len(stated) == bool(words)
    assert all(f" {most} process pairs" in note for note in stated)


def test_quick_and_thorough_exclude_each_other(plain: Path) -> None:
    assert real(plain, "--quick", "--thorough")[0] == 2

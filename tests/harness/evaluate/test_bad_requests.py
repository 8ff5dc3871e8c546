"""`kopt evaluate --json` answers bad input quickly, with one JSON document and the right code.

A thousand mutations of a manifest, a task, a configuration and a request run through the
command's own entry in this process, up to where a harness process would be started; some run
through the real command, to the end. Every run of the tests draws the same mutations.
"""

from __future__ import annotations

import difflib
import gc
import io
import json
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import harness.__main__ as answering
from engine.verify import harness_client
from harness.formats.json_codec import to_json
from harness.requests import EvaluateRequest
from harness.verdict import Verdict
from tests.support import campaigns, mutations, repos
from tests.support.evaluate_entry import MANIFEST, TASK, Entry, judged

CONFIG = {"PASSES": 1, "FORWARD": 2, "OTHER": 0.5}
COUNTS = {"manifest": 400, "task": 350, "config": 110, "patch": 40, "request": 100}
PATCH = """diff --git a/scale.c b/scale.c
--- a/scale.c
+++ b/scale.c
@@ -1,6 +1,6 @@
 #include <stdint.h>
 
-#define PASSES 16  /* kopt: knob PASSES in [1, 16] times that all is computed */
+#define PASSES 1  /* kopt: knob PASSES in [1, 16] times that all is computed */
 #define FORWARD 1  /* kopt: knob FORWARD in [1, 2] steps */
 
 void scale(const float *x, float *out, int64_t n) {
"""


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entry]:
    with pytest.MonkeyPatch.context() as patch:
        made = Entry(tmp_path_factory.mktemp("fuzz"), patch)
        assert made.run(str(made.manifest))[0] == 0
        assert made.run(str(made.manifest), "--config", json.dumps(CONFIG))[0] == 0
        assert made.asked == 2
        yield made
        gc.collect()
        assert not list((made.folder / "tmp").iterdir()), "something was left behind"


Codes = dict[int, int]


def cases(kind: str, run: Callable[[random.Random], int]) -> Codes:
    """Run all mutations of one kind; return the count of each exit code."""
    codes: Codes = {}
    for number in range(COUNTS[kind]):
        try:
            code = run(random.Random(f"{kind} {number}"))
        except BaseException as error:
            error.add_note(f"{kind}, mutation {number}")
            raise
        codes[code] = codes.get(code, 0) + 1
    return codes


def mutated(rng: random.Random, document: Any,
            write: Callable[[Any], bytes] = mutations.as_yaml) -> bytes:
    if rng.random() < 0.6:
        return write(mutations.structured(rng, document))
    return mutations.text(rng, write(document))


def test_bad_manifest_is_a_json_error_and_exit_2(entry: Entry) -> None:
    path = entry.manifest.with_name("mutated.yaml")

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, MANIFEST))
        code, answer = entry.run(str(path))
        if code == 1:
            assert answer["error"]["where"] == "target.kind"  # understood, and cannot be run yet
        if code == 3:
            assert "device" in path.read_text()  # one that this machine does not have
        return code

    codes = cases("manifest", exit_code_of_case)
    assert codes[2] > 200 and codes[0] > 40 and set(codes) <= {0, 1, 2, 3}, codes


def test_bad_task_is_a_json_error_and_exit_2(entry: Entry) -> None:
    def exit_code_of_case(rng: random.Random) -> int:
        entry.task = mutated(rng, TASK)
        return entry.run(str(entry.manifest))[0]

    try:
        codes = cases("task", exit_code_of_case)
    finally:
        entry.task = None
    assert codes[2] > 150 and codes[0] > 20 and set(codes) == {0, 2}, codes


def test_bad_configuration_is_a_verdict_or_exit_2(entry: Entry) -> None:
    def exit_code_of_case(rng: random.Random) -> int:
        config = mutated(rng, CONFIG, mutations.as_json).decode(errors="surrogateescape")
        code, answer = entry.run(str(entry.manifest), f"--config={config}")
        if code == 2:
            assert answer["error"]["what"].startswith("--config: ")
        return code

    codes = cases("config", exit_code_of_case)
    assert set(codes) == {0, 1, 2} and min(codes.values()) > 4, codes


def test_bad_patch_is_a_verdict_and_exit_1(entry: Entry) -> None:
    path = entry.folder / "mutated.patch"

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutations.text(rng, PATCH.encode()))
        return entry.run(str(entry.manifest), "--patch", str(path))[0]

    codes = cases("patch", exit_code_of_case)
    assert set(codes) == {0, 1} and codes[1] > 10, codes


def test_bad_request_is_an_error_line_and_exit_2(
        entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[EvaluateRequest] = []
    monkeypatch.setattr(harness_client, "evaluate",
                        lambda request, **_: requests.append(request) or Verdict(
                            valid=True, correct=True))
    entry.run(str(entry.manifest))
    valid = json.loads(to_json(requests[0]))
    monkeypatch.setattr(
        answering,
        "evaluate",
        lambda target, *_, **__: (
            [target.tensors(exit_code_of_case) for exit_code_of_case in target.classes]
            and Verdict(valid=True, correct=True)
        ),
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = entry.folder / "request.json"
    monkeypatch.setattr(sys, "argv", ["harness", str(path)])

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, valid, mutations.as_json))
        raw = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(raw, write_through=True)) as out:
            code = answering.main()
            out.flush()
        lines = [json.loads(line) for line in raw.getvalue().splitlines()]
        assert [line["type"] for line in lines] == ["error" if code else "verdict"]
        assert not code or lines[0]["exit_code"] == code
        return code

    codes = cases("request", exit_code_of_case)
    assert set(codes) <= {0, 2, 3} and codes[2] > 30, codes


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest in order, of a project in order."""
    return campaigns.project(tmp_path_factory.mktemp("plain") / "p")


def real(*words: object) -> tuple[int, Any]:
    """Run the real command to its end."""
    process = campaigns.kopt("evaluate", *map(str, words), "--json", workspace=Path("nowhere"))
    code, out, err = campaigns.ended(process)
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
    ("void scale( {\n", "does not compile"),
    (campaigns.KERNEL.replace("x[i] * 2.0f", "*(volatile float *)0"), "SIGSEGV"),
    (campaigns.KERNEL.replace("2.0f", "3.0f"), "")], ids=["torn", "crash", "wrong"])
def test_real_command_judges_a_bad_candidate(plain: Path, tmp_path: Path, kernel: str,
                                             words: str) -> None:
    """To the end: what it is given is in order but for the candidate."""
    path = tmp_path / "bad.patch"
    path.write_text("".join(difflib.unified_diff(
        campaigns.KERNEL.splitlines(True), kernel.splitlines(True), "a/scale.c", "b/scale.c")))
    code, verdict = real(plain, "--patch", path)
    assert code == 1 and not verdict["correct"]
    assert verdict["valid"] == (not words) and words in (verdict["rejected_reason"] or "")


def test_a_header_that_edit_leaves_out_is_named_with_what_to_add(plain: Path, tmp_path: Path,
                                                                 ) -> None:
    path = tmp_path / "header.patch"
    with_header = '#include "tile.h"\n' + campaigns.KERNEL
    path.write_text("".join([
        *difflib.unified_diff(campaigns.KERNEL.splitlines(True), with_header.splitlines(True),
                              "a/scale.c", "b/scale.c"),
        "--- /dev/null\n", "+++ b/tile.h\n", "@@ -0,0 +1 @@\n", "+#define TILE 8\n"]))
    code, verdict = real(plain, "--patch", path)
    assert code == 1 and "tile.h" in verdict["rejected_reason"]
    [note] = [note for note in verdict["notes"] if "tile.h" in note]
    assert "`edit` does not include it" in note and "edit: [..., tile.h]" in note


@pytest.mark.parametrize(("words", "effort", "most"), [
    ((), "normal", 18), (("--quick",), "quick", 5),
    pytest.param(("--thorough",), "thorough", 36, marks=pytest.mark.slow)])
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

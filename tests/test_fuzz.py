"""`kopt evaluate --json` on bad input: one JSON document, the right exit code, soon.

A thousand mutations of a manifest, a task, a configuration and a request run through the
command's own entry in this process, up to where a harness process would be started; some run
through the real command, to the end. Every run of the tests draws the same mutations.
"""

from __future__ import annotations

import difflib
import functools
import gc
import io
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import campaigns
import mutations
import pytest
import repos

import harness.__main__ as answering
from engine import direct, harness_process
from harness.convert import from_json, to_json
from harness.requests import EvaluateRequest, Request
from harness.verdict import Verdict
from kopt_tui.main import main

CASE_S = 8.0
"""What one case may take, on a machine that is busy; most take some milliseconds."""
MANIFEST: dict[str, Any] = {
    **campaigns.MANIFEST, "target_backend": "c", "target_shapes": [[4, 5], {"n": 3}],
    "edit": ["scale.c", "src/*.c"], "frozen": ["reference.py", "task.yaml"], "project": ".",
    "env": {"OMP_NUM_THREADS": "1"}, "test_command": "true", "created": "2026-01-01 10:30",
    "python": None, "budget": {"pairs": 4, "wall_s": 60.0}, "stop": {"efficiency_pct": 90},
    "pool": {"backends": ["search", "cli"], "slots": 2, "cli": [
        {"name": "one", "command": "run {prompt}", "env": ["TOKEN"], "timeout_s": 60}]}}
TASK = {**campaigns.TASK, "tolerance": 1e-5, "bytes": "8*n", "precision": None, "classes": [
    {"name": "small", "shape": {"n": 3000}, "weight": 2.0, "tolerance": 1e-4},
    {"name": "large", "shape": {"n": 9000}, "core": True}]}
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


class TooLong(BaseException):
    """A case ran longer than it may; no handler of errors takes this for one."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer."""
    def ring(*_: object) -> None:
        raise TooLong
    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


class Entry:
    """The command in this process, on one project whose clone is made once."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.manifest = campaigns.project(folder / "p", task=TASK, **MANIFEST)
        self.task: bytes | None = None
        self.asked = 0
        """How many requests would have gone to the harness."""
        (folder / "tmp").mkdir()
        checkout = direct.Lineage.checkout_tree
        patch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        patch.setattr(harness_process, "evaluate", self.evaluate)
        patch.setattr(direct.projects, "find", functools.cache(direct.projects.find))
        real = direct.Lineage.create
        clone = functools.cache(lambda project: real(folder / "clone", "direct", project))
        patch.setattr(direct.Lineage, "create", lambda folder, name, project: clone(project))

        @functools.cache
        def out(lineage: direct.Lineage, tree: str) -> Path:
            checkout(lineage, tree, folder / "trees" / tree)
            return folder / "trees" / tree

        patch.setattr(direct.Lineage, "checkout_tree", lambda lineage, tree, path:
                      shutil.copytree(out(lineage, tree), path))
        for name in ("tree_of", "resolve", "read"):
            patch.setattr(direct.Lineage, name, functools.cache(getattr(direct.Lineage, name)))
        read = direct.Lineage.read
        patch.setattr(direct.Lineage, "read", lambda lineage, base, path: self.task
                      if self.task is not None and path == "task.yaml"
                      else read(lineage, base, path))

    def evaluate(self, request: EvaluateRequest, **_: object) -> Verdict:
        """Stand in for the harness process: what is asked has to survive the way there."""
        assert from_json(to_json(request), Request) == request
        self.asked += 1
        return Verdict(valid=True, correct=True)

    def run(self, *words: str) -> tuple[int, Any]:
        out, err = io.StringIO(), io.StringIO()
        with within(CASE_S), redirect_stdout(out), redirect_stderr(err):
            code = main(["evaluate", *words, "--json"])
        return code, judged(code, out.getvalue(), err.getvalue())


def judged(code: int, out: str, err: str) -> Any:
    """Return the one document that was printed; it and the exit code must say the same."""
    assert code in (0, 1, 2, 3)
    assert out.endswith("\n") and out.count("\n") == 1, out
    document = json.loads(out)
    assert "Traceback" not in err
    assert all(character.isprintable() or character == "\n" for character in err), err
    if "error" in document:
        assert document["error"]["exit_code"] == code != 0
        assert document["error"]["what"] and err.startswith("kopt: ") and err.count("\n") == 1
    else:
        assert code == (0 if document["valid"] and document["correct"] else 1)
        assert document["valid"] or document["rejected_reason"]
    return document


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
    """Run all mutations of one kind; returns how often each exit code was given."""
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


def test_a_bad_manifest_is_a_json_error_and_exit_2(entry: Entry) -> None:
    path = entry.manifest.with_name("mutated.yaml")

    def one(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, MANIFEST))
        code, told = entry.run(str(path))
        if code == 1:
            assert told["error"]["where"] == "target.kind"  # understood, and cannot be run yet
        if code == 3:
            assert "device" in path.read_text()  # one that this machine does not have
        return code

    codes = cases("manifest", one)
    assert codes[2] > 200 and codes[0] > 40 and set(codes) <= {0, 1, 2, 3}, codes


def test_a_bad_task_is_a_json_error_and_exit_2(entry: Entry) -> None:
    def one(rng: random.Random) -> int:
        entry.task = mutated(rng, TASK)
        return entry.run(str(entry.manifest))[0]

    try:
        codes = cases("task", one)
    finally:
        entry.task = None
    assert codes[2] > 150 and codes[0] > 20 and set(codes) == {0, 2}, codes


def test_a_bad_configuration_is_a_verdict_or_exit_2(entry: Entry) -> None:
    def one(rng: random.Random) -> int:
        given = mutated(rng, CONFIG, mutations.as_json).decode(errors="surrogateescape")
        code, told = entry.run(str(entry.manifest), f"--config={given}")
        if code == 2:
            assert told["error"]["what"].startswith("--config: ")
        return code

    codes = cases("config", one)
    assert set(codes) == {0, 1, 2} and min(codes.values()) > 4, codes


def test_a_bad_patch_is_a_verdict_and_exit_1(entry: Entry) -> None:
    path = entry.folder / "mutated.patch"

    def one(rng: random.Random) -> int:
        path.write_bytes(mutations.text(rng, PATCH.encode()))
        return entry.run(str(entry.manifest), "--patch", str(path))[0]

    codes = cases("patch", one)
    assert set(codes) == {0, 1} and codes[1] > 10, codes


def test_a_bad_request_is_an_error_line_and_exit_2(
        entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[EvaluateRequest] = []
    monkeypatch.setattr(harness_process, "evaluate",
                        lambda request, **_: requests.append(request) or Verdict(
                            valid=True, correct=True))
    entry.run(str(entry.manifest))
    valid = json.loads(to_json(requests[0]))
    monkeypatch.setattr(answering, "evaluate", lambda target, *_, **__: [
        target.tensors(one) for one in target.classes] and Verdict(valid=True, correct=True))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = entry.folder / "request.json"
    monkeypatch.setattr(sys, "argv", ["harness", str(path)])

    def one(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, valid, mutations.as_json))
        raw = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(raw, write_through=True)) as out:
            code = answering.main()
            out.flush()
        lines = [json.loads(line) for line in raw.getvalue().splitlines()]
        assert [line["type"] for line in lines] == ["error" if code else "verdict"]
        assert not code or lines[0]["exit_code"] == code
        return code

    codes = cases("request", one)
    assert set(codes) <= {0, 2, 3} and codes[2] > 30, codes


def real(folder: Path, *words: str, task: bytes = b"", **given: Any) -> tuple[int, Any]:
    """Run the real command on a project of its own; the task may be any bytes."""
    manifest = campaigns.project(folder / "p", **given)
    if task:
        (folder / "p" / "task.yaml").write_bytes(task)
        repos.git(folder / "p", "commit", "-q", "-a", "-m", "another task")
    for name in ("bad.yaml", "bad.patch"):
        if (folder / name).exists():
            (folder / name).rename(folder / "p" / name)
    words = tuple(str(manifest) if word == "MANIFEST" else word for word in words or ["MANIFEST"])
    process = campaigns.kopt("evaluate", *words, "--json", workspace=folder / "w")
    code, out, err = campaigns.ended(process)
    return code, judged(code, out, err)


@pytest.mark.parametrize("text", [
    b"", b"\xff\xfe\0", b"[" * 100_000, b"target_op: &a x\ntarget_lang: *a\n", b"target_op: .nan\n",
    b"target_op: " + b"x" * 200_000], ids=["empty", "binary", "deep", "alias", "nan", "long"])
def test_the_real_command_on_a_bad_manifest(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.yaml").write_bytes(text)
    assert real(tmp_path, str(tmp_path / "p" / "bad.yaml"))[0] == 2


@pytest.mark.parametrize("text", [
    b"\xc3(", b"kind: kernel\n\t- x\n", mutations.as_yaml({**TASK, "args": []}),
    mutations.as_yaml({**TASK, "classes": [{"name": "huge", "shape": {"n": 2**62}}]}),
    mutations.as_yaml({**TASK, "reference": "../../etc/passwd"})],
    ids=["binary", "tab", "no-arguments", "huge", "outside"])
def test_the_real_command_on_a_bad_task(tmp_path: Path, text: bytes) -> None:
    assert real(tmp_path, task=text)[0] == 2


@pytest.mark.parametrize(("words", "code"), [
    (("--config", "{"), 2), (("--config", '{"PASSES": 3}'), 1), (("--patch", "missing"), 2),
    (("--patch", "bad.patch"), 1), (("--ref", "nowhere"), 1), (("--base", "\udcff"), 2)],
    ids=["torn", "no-choice", "missing", "torn-patch", "no-commit", "no-text"])
def test_the_real_command_on_a_bad_candidate(tmp_path: Path, words: tuple[str, str],
                                             code: int) -> None:
    (tmp_path / "bad.patch").write_text(PATCH.replace("-#define", "-#undef"))
    word = words[1] if words[0] != "--patch" else str(tmp_path / "p" / words[1])
    assert real(tmp_path, "MANIFEST", words[0], word)[0] == code


@pytest.mark.parametrize(("kernel", "words"), [
    ("void scale( {\n", "does not compile"),
    (campaigns.KERNEL.replace("x[i] * 2.0f", "*(volatile float *)0"), "SIGSEGV"),
    (campaigns.KERNEL.replace("2.0f", "3.0f"), "")], ids=["torn", "crash", "wrong"])
def test_the_real_command_judges_a_bad_candidate(tmp_path: Path, kernel: str, words: str) -> None:
    """To the end: what it is given is in order but for the candidate."""
    path = tmp_path / "bad.patch"
    path.write_text("".join(difflib.unified_diff(
        campaigns.KERNEL.splitlines(True), kernel.splitlines(True), "a/scale.c", "b/scale.c")))
    code, verdict = real(tmp_path, "MANIFEST", "--patch", str(tmp_path / "p" / "bad.patch"))
    assert code == 1 and not verdict["correct"]
    assert verdict["valid"] == (not words) and words in (verdict["rejected_reason"] or "")

"""Calls `kopt evaluate` in this process, for many cases that end before a harness starts.

The output is checked against the contract of `--json`: one document, with which the exit code
agrees.
"""

from __future__ import annotations

import functools
import io
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from engine.run import one_shot
from engine.verify import harness_client
from harness.formats.json_codec import from_json, to_json
from harness.requests import EvaluateRequest, Request
from harness.verdict import Verdict
from kopt_tui.main import main
from tests.support.engines import campaigns

CASE_S = 30.0
"""Limit of one case on a busy machine; most cases take some milliseconds."""
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
    """A case exceeded its limit. It is no Exception, so that no handler of errors catches it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong if the `with` block takes longer."""
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
        checkout = one_shot.CampaignRepo.checkout_tree
        patch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        patch.setattr(harness_client, "evaluate", self.evaluate)
        taken = one_shot.current_files.take(folder / "p", folder)
        patch.setattr(one_shot.current_files, "take", lambda path, folder: taken)
        real = one_shot.CampaignRepo.create
        clone = functools.cache(lambda project: real(folder / "clone", "direct", project))
        patch.setattr(
            one_shot.CampaignRepo, "create", lambda folder, name, project, **_: clone(project)
        )

        @functools.cache
        def out(repo: one_shot.CampaignRepo, tree: str) -> Path:
            checkout(repo, tree, folder / "trees" / tree)
            return folder / "trees" / tree

        patch.setattr(one_shot.CampaignRepo, "checkout_tree", lambda repo, tree, path:
                      shutil.copytree(out(repo, tree), path, dirs_exist_ok=True))
        capture = one_shot.CampaignRepo.capture
        captured: dict[bytes, Any] = {}

        def take(repo: one_shot.CampaignRepo, tree: Path, *more: Any) -> Any:
            text = (tree / "scale.c").read_bytes()
            if text not in captured:
                captured[text] = capture(repo, tree, *more)
            return captured[text]

        patch.setattr(one_shot.CampaignRepo, "capture", take)
        for name in ("tree_of", "resolve", "read", "apply"):
            patch.setattr(
                one_shot.CampaignRepo, name, functools.cache(getattr(one_shot.CampaignRepo, name))
            )
        read = one_shot.CampaignRepo.read
        patch.setattr(one_shot.CampaignRepo, "read", lambda repo, base, path: self.task
                      if self.task is not None and path == "task.yaml"
                      else read(repo, base, path))

    def evaluate(self, request: EvaluateRequest, **_: object) -> Verdict:
        """Replace the harness process; check that the request survives serialisation."""
        assert from_json(to_json(request), Request) == request
        self.asked += 1
        return Verdict(valid=True, correct=True)

    def run(self, *words: str) -> tuple[int, Any]:
        out, err = io.StringIO(), io.StringIO()
        with within(CASE_S), redirect_stdout(out), redirect_stderr(err):
            code = main(["evaluate", *words, "--json"])
        return code, judged(code, out.getvalue(), err.getvalue())


def judged(code: int, out: str, err: str) -> Any:
    """Return the printed document, after a check that the exit code agrees with it."""
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

"""Runs the real `kopt` command in a process, on journals written by real writers."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.journal.records import Bottleneck
from engine.journal.write import Writer
from harness.verdict import Row
from tests.support import json_schema
from tests.support.dashboards import samples
from tests.support.paths import ROOT
from tests.support.programs import forked_command

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
os.environ.setdefault("KOPT_LOCK_DIR", f"/tmp/kopt-test-locks-{RUN}")  # separate from other runs

EXAMPLE = ROOT / "examples" / "rmsnorm_c"
NASTY = "unroll \x1b[31mred\x1b[0m | <b>bold</b> \x07[link](http://x)"
PATCH = b"diff --git a/k.c b/k.c\n--- a/k.c\n+++ b/k.c\n@@ -1 +1 @@\n-a\n+b \x1b]0;title\x07\n"
NAME = "rmsnorm_c_cpu_20261120"


def kopt(*words: str, workspace: Path | None = None, stdin: str | bytes = "",
         cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end, in an empty folder unless `cwd` names another.

    It runs in a fork, unless `env` has variables that Python reads only when it starts.
    """
    place = ["--workspace", str(workspace)] if workspace else []
    data = stdin.encode() if isinstance(stdin, str) else stdin
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    with tempfile.TemporaryDirectory() as empty:
        folder = cwd or Path(empty)
        if any(name.startswith("PYTHON") for name in env):
            done = subprocess.run([sys.executable, "-m", "kopt_tui.main", *words, *place],
                                  input=data, capture_output=True, timeout=60, check=False,
                                  cwd=folder, env=variables)
        else:
            done = forked_command.run([*words, *place], data=data, cwd=folder, env=variables,
                                      limit_s=60.0)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(),
                                       done.stderr.decode())


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    """Check a command's exit code and its JSON by the verb's schema; return the JSON."""
    assert done.returncode == code, done.stderr
    value = json.loads(done.stdout)
    if "--schema" not in done.args:
        faults = json_schema.answer_faults(done.args, value)
        assert not faults, faults
    return value


def error_text(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line on standard error, without its prefix."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kopt: "), done.stderr
    return lines[0].removeprefix("kopt: ")


def write_campaign(workspace: Path, name: str = NAME, **fields: Any) -> Path:
    """Record a campaign that kept one candidate, tried two others and has one waiting."""
    folder = workspace / name
    (folder / "patches").mkdir(parents=True)
    (folder / "patches" / "kept.patch").write_bytes(PATCH)
    given: dict[str, Any] = {
        "path": str(folder), "state": "finished", "reason": "max_iterations reached",
        "base_commit": "b" * 40, "best_commit": "c" * 40, "speedup": 2.5, "speedup_low": 2.4,
        "speedup_high": 2.6, "rounds_max": 8, "created_at": 1000.0,
    }
    writer = Writer(workspace)
    try:
        writer.add_campaign(samples.campaign(name, **(given | fields)))
        writer.start_round(samples.round_(1, name))
        writer.put_slots([samples.slot("fixed-1", 1, name, hypothesis=NASTY)])
        writer.put_bottlenecks(name, 1, [Bottleneck(
            campaign=name, round=1, rank=1, id="b1", kernel="rmsnorm", config_class="tall",
            limiter="memory", metric="GB/s", value=12.5, detail="", advice="vectorise | it")])
        for id, state, kind, reason in (
                ("aa11", "kept", "keep", "faster in every class"),
                ("bb22", "closed", "tie", "no difference"),
                ("bb33", "closed", "reject", "crash: signal 11\nsecond line"),
                ("dd44", "waiting", "ask", "above 2x")):
            _judge(writer, name, id, state, kind, reason)
        writer.end_round(name, 1, outcome="keep", summary="one kept", best_speedup=2.5)
    finally:
        writer.close()
    return folder


def _judge(writer: Writer, name: str, id: str, state: Any, kind: Any,
           reason: str) -> None:
    full = id * 5
    writer.add_candidate(samples.candidate(
        full, name, hypothesis=NASTY, patch_path="patches/kept.patch",
        base_commit="c" * 40 if state == "waiting" else "b0",
        patch_sha256=hashlib.sha256(PATCH).hexdigest()))
    rows = (Row(config_class="tall", correct=True, outcome="faster", latency_us=10.0,
                incumbent_us=25.0, log_ratio=math.log(2.5), low=0.875, high=0.955, pairs=4,
                core=True),
            Row(config_class="odd", correct=True, outcome="tie", latency_us=7.0,
                incumbent_us=7.0, log_ratio=0.0, low=-0.01, high=0.01, pairs=4))
    verdict = samples.verdict(full, speedup=2.5, speedup_low=2.4, speedup_high=2.6, rows=rows)
    number = writer.add_verdict(name, full, verdict, purpose="candidate")
    writer.add_decision(name, full, kind, reason, round=1, actor="judge", verdict=number,
                        commit="c" * 40 if kind == "keep" else "")
    commit = {"kept": "c", "waiting": "e"}.get(state, "") * 40
    if state == "kept":
        writer.set_candidate_state(name, full, "keeping", commit=commit)
    writer.set_candidate_state(name, full, state, commit=commit, reason=reason)


def harmless(text: str) -> bool:
    """Return whether a text has no control characters except line ends."""
    return all(character.isprintable() or character == "\n" for character in text)


def converse(words: list[str], answers: dict[str, str]) -> tuple[int, str]:
    """Run kopt on a terminal; return its exit code and its screen.

    Each key of `answers`, in order, is awaited on the screen; then its value is typed.
    """
    leader, follower = pty.openpty()
    pid = forked_command.start(words, [follower] * 3, ROOT, os.environ, own_session=True)
    os.close(follower)
    screen, seen, waiting = "", 0, list(answers.items())
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        if waiting and (at := screen.find(waiting[0][0], seen)) >= 0:
            reply = waiting.pop(0)[1]
            seen = at + 1
            os.write(leader, reply.encode() + (b"" if reply == "\x04" else b"\n"))
        if select.select([leader], [], [], 0.05)[0]:
            try:
                screen += os.read(leader, 4096).decode(errors="replace")
            except OSError:
                break
    os.close(leader)
    if time.monotonic() >= deadline:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen

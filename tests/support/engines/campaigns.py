"""Tiny real projects and campaigns: a C kernel that one knob makes several times faster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from engine.campaign import setup as campaigns
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, Event
from engine.run.engine import Engine
from harness.formats import yaml_document
from tests.support import repos
from tests.support.paths import ROOT
from tests.support.programs import forked_command

T = TypeVar("T")

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
os.environ.setdefault("KOPT_LOCK_DIR", f"/tmp/kopt-test-locks-{RUN}")  # separate from other runs

KERNEL = """\
#include <stdint.h>

#define PASSES 16  /* kopt: knob PASSES in [1, 16] times that all is computed */
#define FORWARD 1  /* kopt: knob FORWARD in [1, 2] steps */

void scale(const float *x, float *out, int64_t n) {
    for (int pass = 0; pass < PASSES; pass++) {
        for (int64_t i = 0; i < n; i++) out[i] = x[i] * 2.0f;
        __asm__ volatile("" ::: "memory");
    }
}
"""
REFERENCE = "def scale(x):\n    return x * 2.0\n"
TASK: dict[str, Any] = {
    "kind": "kernel", "op": "scale", "language": "c", "source": "scale.c", "entry": "scale",
    "reference": "reference.py:scale", "build": ["-O1"],
    "args": [{"name": "x", "dtype": "float32", "shape": ["n"]},
             {"name": "out", "dtype": "float32", "shape": ["n"], "role": "output"},
             {"name": "n", "dtype": "int64", "value": "n"}],
    "classes": [{"name": "small", "shape": {"n": 3000}}],
    "flops": "n",
}
MANIFEST: dict[str, Any] = {
    "target_op": "scale", "target": {"kind": "kernel", "task": "task.yaml"},
    "approval": "auto", "max_iterations": 1, "gpu": {"device": "cpu"}, "budget": {"pairs": 4},
    "decision": {"alpha": 0.2, "looks": 4},
    "pool": {"slots": 2, "trials": 3, "workers": 2},
}
FASTER = KERNEL.replace("PASSES 16", "PASSES 1")


def project(path: Path, *, kernel: str = KERNEL, reference: str = REFERENCE,
            task: dict[str, Any] | None = None, **fields: Any) -> Path:
    """Make a project with a manifest and return the manifest's path."""
    repos.project(path, {
        "scale.c": kernel, "reference.py": reference,
        "task.yaml": yaml_document.dump({**TASK, **(task or {})}),
        "manifest.yaml": yaml_document.dump({**MANIFEST, **fields}),
    })
    return path / "manifest.yaml"


def create(root: Path, **fields: Any) -> campaigns.Setup:
    """Make a project in `root`/p and a campaign on it in the workspace `root`/w."""
    return campaigns.create(root / "w", project(root / "p", **fields))


def create_with_patch(root: Path, **fields: Any) -> campaigns.Setup:
    """Make a campaign whose only candidate is one submitted patch with a faster kernel."""
    setup = create(root, **{"pool": {"slots": 1, "backends": ["inbox"]}, **fields})
    hand_in(setup)
    return setup


def hand_in(setup: campaigns.Setup, text: str = FASTER, name: str = "given",
            source: str = "scale.c") -> None:
    """Put a patch that replaces the source's text into the inbox."""
    (setup.folder.inbox / f"{name}.patch").write_bytes(patch(setup, text, source=source))


def run(setup: campaigns.Setup, *, decide_only: bool = False, limit_s: float = 200.0) -> Engine:
    """Run the campaign's engine to its end in this process."""
    engine = Engine(setup.workspace, setup.id, decide_only=decide_only)
    engine.start()
    engine.join(limit_s)
    if engine.is_alive():
        with reading(setup) as reader:
            raise AssertionError(f"the engine did not end: {reader.last_events(setup.id, 12)}")
    return engine


def start(setup: campaigns.Setup) -> Engine:
    """Start the campaign's engine in this process; return it as soon as the campaign runs."""
    engine = Engine(setup.workspace, setup.id)
    engine.start()
    until(lambda: campaign(setup).state == "running")
    return engine


@contextmanager
def running(setup: campaigns.Setup) -> Iterator[Engine]:
    """Run the campaign's engine in this process until the `with` block ends."""
    engine = start(setup)
    try:
        yield engine
    finally:
        engine.stop()
        engine.join(90)
        assert not engine.is_alive(), "the engine did not stop"


def until(condition: Callable[[], T], limit_s: float = 200.0, what: str = "") -> T:
    """Poll until `condition` returns a true value and return it; fail after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what or condition}"
        time.sleep(0.02)


@contextmanager
def reading(setup: campaigns.Setup) -> Iterator[Reader]:
    reader = Reader(setup.workspace)
    try:
        yield reader
    finally:
        reader.close()


def campaign(setup: campaigns.Setup) -> Campaign:
    with reading(setup) as reader:
        record = reader.campaign(setup.id)
    assert record is not None
    return record


def candidates(setup: campaigns.Setup, *states: Any) -> list[Candidate]:
    with reading(setup) as reader:
        return reader.candidates(setup.id, states=states)


def events(setup: campaigns.Setup) -> list[Event]:
    """Return all events of a campaign, oldest first."""
    with reading(setup) as reader:
        return reader.events(campaign=setup.id, limit=100_000)


def slots(setup: campaigns.Setup, round: int = 2) -> dict[str, tuple[str, str]]:
    """Return each slot's last stage and detail."""
    with reading(setup) as reader:
        return {slot.slot: (slot.stage, slot.detail) for slot in reader.slots(setup.id, round)}


def patch(setup: campaigns.Setup, text: str = FASTER, base: str = "",
          source: str = "scale.c") -> bytes:
    """Return the diff that replaces the kernel's source by `text`."""
    from engine.repository.campaign_repo import CampaignRepo

    repo: CampaignRepo = setup.repo
    folder = setup.folder.path / "edit"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    repo.checkout_tree(base or repo.best, folder)
    (folder / source).write_text(text)
    return repo.capture(folder, base or repo.best, (source,)).patch.data


def consistent(setup: campaigns.Setup) -> list[str]:
    """Check that journal, clone and the user's repository agree; return the kept commits."""
    kept = candidates(setup, "kept")
    repo, branch = setup.repo, f"refs/heads/optimize/{setup.id}"
    commits = repo.log(repo.best, repo.base)
    assert sorted(commits) == sorted(candidate.commit for candidate in kept)
    assert campaign(setup).best_commit == repo.best
    messages = [repos.message(repo.git_dir, commit) for commit in commits]
    for candidate in kept:
        assert sum(candidate.id in message for message in messages) == 1
    user = repo.project
    if commits:
        assert repos.git(user, "rev-parse", branch) == repo.best
        assert repos.git(user, "rev-list", "--count", f"main..{branch}") == str(len(commits))
    return commits


def processes(folder: Path) -> list[str]:
    """Return the command lines of processes with the folder's path in arguments, cwd or variables.
    """
    arguments = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            place = os.readlink(entry / "cwd")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # it has ended
        text = words + b"\0" + place.encode() + b"\0" + environment
        if str(folder).encode() in text:
            arguments.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return arguments


def kopt(*words: str, workspace: Path, **env: str) -> subprocess.Popen[str]:
    """Start the real command."""
    return subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "--workspace", str(workspace), *words], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env})


REQUESTS = ("approve", "reject", "pause", "resume", "stop", "set")


def command(*words: str, workspace: Path, **env: str) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code, stdout and stderr.

    A request waits up to 100 s for the engine's answer.
    """
    if words[0] in REQUESTS and "--wait" not in words:
        words = (*words, "--wait", "100")
    done = forked_command.run(
        ["--workspace", str(workspace), *words], data=b"", cwd=None, limit_s=200.0,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def ended(process: subprocess.Popen[str], limit_s: float = 200.0) -> tuple[int, str, str]:
    """Wait for a command; return its exit code, stdout and stderr."""
    out, err = process.communicate(timeout=limit_s)
    return process.returncode, out, err

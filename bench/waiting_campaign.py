"""Run a real campaign whose gains wait for a person, and keep its records.

    python bench/waiting_campaign.py FOLDER

A scripted author hands in four changes to examples/matmul_c, each made from the provisional best.
The first two are above 2x and wait; the third rests on them, and the last is no gain. Then a
person approves the first, late, and rejects the second, so that the third is tried on the first
alone. Records go to bench/results/waiting-campaign-<date>/.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import machine
import msgspec

from engine.campaign.setup import Setup, open_campaign
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.manifest import load
from engine.repository.project import start_repository
from engine.run import host

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ("performance.md", "results.tsv", "report.md", "logs/optimize.md",
           "logs/performance_trend.md", "rounds/*/summary.md")
KERNEL = "matmul.c"
INNER = """\
        for (int64_t p = 0; p < depth; p++)
            for (int64_t j = 0; j < cols; j++)"""


def replaced(before: str, after: str) -> Callable[[str], str]:
    return lambda text: text.replace(before, after)


CHANGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("four columns of c at once: the loads of b become vectors",
     replaced("TILE_N 1 ", "TILE_N 4 ")),
    ("sixteen columns of c at once fill two vector registers",
     replaced("TILE_N 4 ", "TILE_N 16 ")),
    ("four steps of depth at once hide the latency of the additions",
     replaced(INNER, f"#pragma GCC unroll 4\n{INNER}")),
    ("short steps of depth keep both tiles in the first cache",
     replaced("TILE_K 64 ", "TILE_K 16 ")))


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    project, workspace = folder / "project", folder / "workspace"
    shutil.copytree(ROOT / "examples" / "matmul_c", project)
    start_repository(project, "the naive kernel")
    loaded = load.load(project / "manifest.yaml")
    manifest = folder / "manifest.yaml"
    manifest.write_text(load.dump(msgspec.structs.replace(
        loaded, approval="flagged", max_iterations=20,
        pool=msgspec.structs.replace(loaded.pool, slots=1, backends=("inbox",))), brief=True))
    kopt(workspace, "run", str(manifest), "--wait")
    with closing(Reader(workspace)) as reader:
        campaign = reader.campaigns()[0].id
    setup = open_campaign(workspace, campaign)
    first, second, *_ = [hand_in(setup, folder / f"change-{number}.patch", hypothesis, change)
                         for number, (hypothesis, change) in enumerate(CHANGES, 1)]
    kopt(workspace, "show", campaign)
    kopt(workspace, "approve", second.id, expected=1)
    kopt(workspace, "approve", first.id, "--wait", "300")
    wait(workspace, campaign)
    kopt(workspace, "reject", second.id, "--wait", "300")
    wait(workspace, campaign)
    kopt(workspace, "show", campaign)
    keep_records(setup)


def hand_in(setup: Setup, path: Path, hypothesis: str,
            change: Callable[[str], str]) -> Candidate:
    """Submit a change made from the provisional best; return its candidate once it is judged."""
    before = setup.repo.read(setup.repo.tip, KERNEL).decode()
    path.write_text("".join(difflib.unified_diff(
        before.splitlines(keepends=True), change(before).splitlines(keepends=True),
        f"a/{KERNEL}", f"b/{KERNEL}")))
    known = {candidate.id for candidate in candidates(setup)}
    kopt(setup.workspace, "submit", str(path), setup.id, "--hypothesis", hypothesis)
    wait(setup.workspace, setup.id)
    return next(own for own in candidates(setup) if own.id not in known and not own.form_of)


def candidates(setup: Setup) -> list[Candidate]:
    with closing(Reader(setup.workspace)) as reader:
        return reader.candidates(setup.id)


def wait(workspace: Path, campaign: str) -> None:
    """Wait until no host works on the campaign."""
    while host.owner(workspace, campaign) is not None:
        time.sleep(0.2)


def kopt(workspace: Path, *words: str, expected: int = 0) -> None:
    """Run the real command, and stop if it does not end as expected."""
    print(f"$ kopt {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "kopt_tui.main", "--workspace", str(workspace),
                           *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    if done.returncode != expected:
        sys.exit(f"kopt {words[0]} ended with {done.returncode}")


def keep_records(setup: Setup) -> None:
    """Copy the campaign's files for people, with the machine they were made on."""
    to = machine.RESULTS / f"waiting-campaign-{time.strftime('%Y-%m-%d')}"
    shutil.rmtree(to, ignore_errors=True)
    for pattern in RECORDS:
        for path in sorted(setup.folder.path.glob(pattern)):
            target = to / path.relative_to(setup.folder.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text().replace(str(setup.workspace.parent), "<folder>")
            target.write_text(text)
    (to / "machine.txt").write_text(f"{machine.describe()}\n")


if __name__ == "__main__":
    main()

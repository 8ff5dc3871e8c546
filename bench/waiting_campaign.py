"""Run a real campaign whose gains wait for a person, and keep its records.

    python bench/waiting_campaign.py FOLDER

A scripted author hands in five changes to examples/matmul_c, each made from the provisional best.
The first is above 2x and waits; the second rests on it. The third reaches outside the kernel's file
and waits as well; the fourth and the fifth, which is slower, rest on it. Then a person approves the
first, late, and rejects the third. Records go to bench/results/waiting-campaign-<date>/.
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
from harness.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ("performance.md", "results.tsv", "report.md", "logs/optimize.md",
           "logs/performance_trend.md", "rounds/*/summary.md")
INNER = """\
        for (int64_t p = 0; p < depth; p++)
            for (int64_t j = 0; j < cols; j++)"""
Files = dict[str, str]


def wide(files: Files) -> Files:
    return {**files, "matmul.c": files["matmul.c"].replace("TILE_N 1 ", "TILE_N 4 ")}


def wider(files: Files) -> Files:
    return {**files, "matmul.c": files["matmul.c"].replace("TILE_N 4 ", "TILE_N 8 ")}


def header(files: Files) -> Files:
    text = files["matmul.c"].replace("TILE_N 8 ", "TILE_N TILE_WIDTH ")
    return {"matmul.c": text.replace("#include <stdint.h>\n",
                                     '#include <stdint.h>\n#include "tiles.h"\n'),
            "tiles.h": "#define TILE_WIDTH 16\n"}


def unrolled(files: Files) -> Files:
    return {**files, "matmul.c": files["matmul.c"].replace(INNER, f"#pragma GCC unroll 4\n{INNER}")}


def shallow(files: Files) -> Files:
    return {**files, "matmul.c": files["matmul.c"].replace("TILE_K 64 ", "TILE_K 16 ")}


CHANGES: tuple[tuple[str, Callable[[Files], Files]], ...] = (
    ("four columns of c at once: the loads of b become vectors", wide),
    ("eight columns of c at once fill a whole vector register", wider),
    ("sixteen columns of c at once, with the tile's width in a header of its own", header),
    ("four steps of depth at once hide the latency of the additions", unrolled),
    ("short steps of depth keep both tiles in the first cache", shallow))


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
    made = [hand_in(setup, folder / f"change-{number}.patch", hypothesis, change)
            for number, (hypothesis, change) in enumerate(CHANGES, 1)]
    first, _, third, *_ = made
    kopt(workspace, "show", campaign)
    kopt(workspace, "approve", third.id, expected=1)
    kopt(workspace, "approve", first.id, "--wait", "300")
    wait(workspace, campaign)
    kopt(workspace, "reject", third.id, "--wait", "300")
    wait(workspace, campaign)
    kopt(workspace, "show", campaign)
    keep_records(setup)


def hand_in(setup: Setup, path: Path, hypothesis: str,
            change: Callable[[Files], Files]) -> Candidate:
    """Submit a change made from the provisional best; return its candidate once it is judged."""
    repo, workspace = setup.repo, setup.workspace
    before = {}
    for name in ("matmul.c", "tiles.h"):
        try:
            before[name] = repo.read(repo.tip, name).decode()
        except InputError:
            continue
    after = change(before)
    path.write_text("".join(
        line for name, text in after.items() if text != before.get(name)
        for line in difflib.unified_diff(
            before.get(name, "").splitlines(keepends=True), text.splitlines(keepends=True),
            f"a/{name}" if name in before else "/dev/null", f"b/{name}")))
    known = {candidate.id for candidate in candidates(setup)}
    kopt(workspace, "submit", str(path), setup.id, "--hypothesis", hypothesis)
    wait(workspace, setup.id)
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

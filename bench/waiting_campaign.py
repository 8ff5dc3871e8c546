"""Run a real campaign whose gains wait for a person, and keep its records.

    python bench/waiting_campaign.py FOLDER matmul_c|paged_attention_c

A scripted agent tries the ideas of bench/ideas/<example>.yaml, one per round, on a copy of the
example. Gains above 2x wait, and later rounds build on them. After the rounds this script acts for
the person: it approves the waiting candidates, the lowest on the line first, but rejects the idea
that is marked `rejected`; candidates built on that idea are tried again. If FOLDER already has a
campaign, the script continues it. Records go to bench/results/<example>-waiting-<date>/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import machine
import msgspec
import scripted_agent
import yaml

from engine.campaign.setup import Setup, open_campaign
from engine.history import waiting_line
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.manifest import load
from engine.manifest.pool_schema import CliSpec
from engine.manifest.schema import Manifest
from engine.repository.project import start_repository
from engine.run import host

ROOT = Path(__file__).resolve().parent.parent
IDEAS = ROOT / "bench" / "ideas"
RECORDS = ("performance.md", "results.tsv", "report.md", "logs/optimize.md",
           "logs/performance_trend.md", "rounds/*/summary.md")


def main() -> None:
    folder, example = Path(sys.argv[1]).resolve(), sys.argv[2]
    workspace = folder / "workspace"
    if not workspace.exists():
        kopt(workspace, "run", str(prepare(folder, example)), "--wait")
    with closing(Reader(workspace)) as reader:
        campaign = reader.campaigns()[0].id
    wait(workspace, campaign)
    kopt(workspace, "show", campaign)
    if upper := waiting(workspace, campaign)[1:]:
        kopt(workspace, "approve", upper[0].id, expected=1)
    rejected = {idea["why"] for idea in read(example)["ideas"] if idea.get("rejected")}
    while lowest := waiting(workspace, campaign)[:1]:
        verb = "reject" if lowest[0].hypothesis in rejected else "approve"
        kopt(workspace, verb, lowest[0].id, "--wait", "300")
        wait(workspace, campaign)
    kopt(workspace, "show", campaign)
    kopt(workspace, "report", campaign, "--records")
    name = f"{example.replace('_', '-')}-waiting-{time.strftime('%Y-%m-%d')}"
    keep_records(open_campaign(workspace, campaign), machine.RESULTS / name)


def prepare(folder: Path, example: str) -> Path:
    """Copy an example and write a manifest whose only worker is the scripted agent."""
    listed = read(example)
    project = folder / "project"
    shutil.copytree(ROOT / "examples" / example, project)
    source = project / listed["source"]
    text = scripted_agent.edited(source.read_text(), listed.get("start", []))
    if text is None:
        sys.exit(f"the edits at the start of {example}.yaml do not apply to {source}")
    source.write_text(text)
    start_repository(project, "the naive kernel")
    manifest = folder / "manifest.yaml"
    manifest.write_text(load.dump(with_agent(
        load.load(project / "manifest.yaml"), example, rounds=len(listed["ideas"])), brief=True))
    return manifest


def read(example: str) -> dict[str, Any]:
    """Return the ideas for an example."""
    listed: dict[str, Any] = yaml.safe_load((IDEAS / f"{example}.yaml").read_text())
    return listed


def with_agent(manifest: Manifest, example: str, *, rounds: int) -> Manifest:
    """Return a manifest whose rounds have one slot, for the scripted agent."""
    agent = CliSpec(name="ideas", network=False, timeout_s=60.0,
                    command=f"{{python}} {ROOT}/bench/scripted_agent.py {IDEAS}/{example}.yaml "
                            "{prompt}")
    return msgspec.structs.replace(
        manifest, approval="flagged", max_iterations=rounds,
        budget=msgspec.structs.replace(manifest.budget, pairs=8), pool=msgspec.structs.replace(
            manifest.pool, mode="fixed", slots=1, backends=("split", "cli"), cli=(agent,)))


def waiting(workspace: Path, campaign: str) -> list[Candidate]:
    """Return the candidates that wait for approval, the lowest on the waiting line first."""
    with closing(Reader(workspace)) as reader:
        return [own for own in waiting_line.read(reader, campaign) if own.state == "waiting"]


def wait(workspace: Path, campaign: str) -> None:
    """Wait until no process runs the campaign."""
    while host.owner(workspace, campaign) is not None:
        time.sleep(0.2)


def kopt(workspace: Path, *words: str, expected: int = 0) -> None:
    """Run the real command, and stop if it does not end as expected."""
    print(f"$ kopt {' '.join(words)}", flush=True)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-m", "kopt_tui.main", "--workspace", str(workspace),
                           *words], env={**os.environ, "PYTHONPATH": paths}, check=False)
    if done.returncode != expected:
        sys.exit(f"kopt {words[0]} ended with {done.returncode}")


def keep_records(setup: Setup, to: Path) -> None:
    """Copy the campaign's files for people, with the machine they were made on."""
    shutil.rmtree(to, ignore_errors=True)
    tips = setup.workspace.glob("historical_experience/**/tips.md")
    for path in [*(path for pattern in RECORDS for path in sorted(setup.folder.path.glob(pattern))),
                 *tips]:
        target = to / (path.name if path.name == "tips.md" else path.relative_to(setup.folder.path))
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text().replace(str(setup.workspace.parent), "<folder>")
        target.write_text(text.replace(str(ROOT), "<kopt>"))
    kept = setup.repo.git.run("log", "--reverse", f"{setup.repo.base}..{setup.repo.best}")
    (to / "commits.txt").write_text(kept.decode())
    (to / "machine.txt").write_text(f"{machine.describe()}\n")


if __name__ == "__main__":
    main()

"""A divergent candidate that kopt cannot split is given back to its agent once."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.campaign.setup import Setup
from engine.manifest.pool_schema import CliSpec
from engine.rounds import retries
from engine.task import RepairRequest, SplitRequest
from engine.workers.cli import CliWorker
from engine.workers.protocol import LOG
from harness.verdict import Finding
from tests.support.engines import campaigns, killed_campaign
from tests.support.engines.repair_case import decisions
from tests.support.searches import kernel_split_case, split_case
from tests.support.searches.divergent_candidate import TASK, entry, verdict
from tests.support.searches.split_case import KERNEL

DIVERGED = verdict(a="faster", b="slower", c="tie")
REQUEST = SplitRequest(
    candidate="c1",
    tree="",
    faster=("context=1024",),
    slower=("context=8",),
    others=("context=64",),
    changed=("total.c", "src/wide.h"),
    deleted=("old.h",),
    reason="a class loses 30.0%; needs a split",
)


@pytest.mark.parametrize(("paths", "split", "backends"), [
    (["total.c"], True, ["split", "cli"]),
    (["total.c"], False, ["cli"]),
    (["total.c", "x.c"], True, ["cli"]),  # more than kopt can split by itself
])
def test_split_backend_tries_first_and_then_the_agent(paths: list[str], split: bool,
                                                      backends: list[str]) -> None:
    tried = [retries.next_split(TASK, entry(*paths), Path("/t"), DIVERGED, "total.c",
                                    split=split, tries=tries, complaint="needs a split")
             for tries in range(3)]
    assert [task.backend for task in tried if task is not None] == backends
    last = tried[len(backends) - 1]
    assert last is not None and last.split is not None and last.slot == TASK.slot
    assert last.split.faster == ("a",) and last.split.reason == "needs a split"
    assert last.split.changed == tuple(paths) and last.option == TASK.option
    assert retries.next_split(last, entry(*paths), Path("/t"), DIVERGED, "total.c") is None


def test_rejected_candidate_is_not_split() -> None:
    cheat = replace(DIVERGED, audit=(Finding(rule="audit", severity="reject", detail="sleeps"),))
    assert retries.next_split(TASK, entry("total.c"), Path("/t"), cheat, "total.c") is None


def test_only_an_agent_is_asked_to_split() -> None:
    search = msgspec.structs.replace(TASK, backend="search")
    assert retries.next_split(search, entry("total.c"), Path("/t"), DIVERGED, "total.c",
                              split=False) is None


def prompt_of(folder: Path, request: SplitRequest, target: Any = split_case.TARGET,
              repair: RepairRequest | None = None) -> tuple[str, Path]:
    """Return an agent's prompt, and the folder of the change to split."""
    bench = msgspec.structs.replace(split_case.bench(folder), target=target)
    tree = split_case.project(folder / "candidate", total_c=KERNEL.replace("TILE 32", "TILE 256"))
    (tree / "src").mkdir()
    (tree / "src/wide.h").write_text("wide")
    command = f"{sys.executable} -c 'print(open(\"{{prompt}}\").read())'"
    task = msgspec.structs.replace(
        TASK, option="agent", repair=repair, split=msgspec.structs.replace(request, tree=str(tree))
    )
    report = CliWorker([CliSpec(name="agent", command=command)]).work(
        task, bench, lambda *_: None, threading.Event())
    assert report.ok, report
    assert (Path(bench.worktree) / "total.c").read_text() == KERNEL
    return (Path(bench.scratch) / LOG).read_text(), Path(bench.scratch) / "home" / "candidate"


def test_split_prompt_names_classes_and_dispatch_columns(tmp_path: Path) -> None:
    prompt, folder = prompt_of(tmp_path, REQUEST)
    for words in ("## Kernel split", str(folder), "- faster: context=1024\n",
                  "- slower: context=8\n", "- neither: context=64\n", "the default",
                  "dispatch on context", "a class loses 30.0%; needs a split",
                  "it deletes old.h", "All classes are measured again"):
        assert words in prompt, words
    assert "TILE 256" in (folder / "total.c").read_text()
    assert (folder / "src/wide.h").read_text() == "wide" and not (folder / "bench.py").exists()


def test_split_prompt_names_sizes_of_kernel_classes(tmp_path: Path) -> None:
    request = msgspec.structs.replace(REQUEST, faster=("large",), slower=("small",), others=(),
                                      deleted=())
    prompt, _ = prompt_of(tmp_path, request, kernel_split_case.TARGET)
    assert "- faster: large (n=40000)\n" in prompt and "- slower: small (n=60)\n" in prompt
    assert "dispatch on n (on those of them that it is given)," in prompt
    assert "- neither:" not in prompt and "it deletes" not in prompt


def test_repair_of_a_split_starts_from_the_split(tmp_path: Path) -> None:
    prompt, _ = prompt_of(tmp_path, REQUEST, repair=RepairRequest(
        attempt=1, of=3, candidate="c2", tree="", changed=(), deleted=(), complaint="wrong"))
    assert "## Repair, attempt 1 of 3" in prompt and "this folder holds your split of it" in prompt


AGENT = """\
import sys
from pathlib import Path

split = "## Kernel split" in Path(sys.argv[1]).read_text()
Path("kernel.py").write_text('''COST = 100.0

def err(m):
    return 0

def spoil(rows):
    for row in rows:
        share = 0.5 if row["n"] == 32 else %s
        row.update({name: float(row[name]) * share for name in ("fwd_us", "bwd_us")})
    return rows
''' % (1.0 if split else 1.5))
"""


def create(root: Path, agent: Path, *backends: str, rounds: int = 1) -> Setup:
    agent.write_text(AGENT)
    manifest = {**killed_campaign.MANIFEST, "max_iterations": rounds, "kernel_source": "kernel.py",
                "pool": {"slots": 1, "workers": 1, "backends": ["cli", *backends], "cli": [
                    {"name": "agent", "command": f"{{python}} {agent} {{prompt}}"}]}}
    setup = killed_campaign.create(root, manifest)
    for path in setup.folder.inbox.iterdir():
        path.unlink()
    return setup


@pytest.mark.slow
@pytest.mark.parametrize(("backends", "count"), [((), 1), (("split",), 2)])
def test_agents_split_is_kept_and_kills_leave_no_trace(tmp_path: Path, backends: tuple[str, ...],
                                                    count: int) -> None:
    records = {}
    for name, kills in (("undisturbed", 0), ("killed", count)):
        setup = create(tmp_path / name, tmp_path / "agent.py", *backends)
        for _ in range(kills):
            assert killed_campaign.is_killed(setup)
        assert killed_campaign.host(setup).wait(120) == 0
        made = decisions(setup)
        assert [kind for kind, _ in made] == ["split"] * count + ["keep"], made
        assert made[count - 1][1].endswith("its agent is asked to split it")
        if count == 2:
            assert "not split: " in made[1][1]
        records[name] = killed_campaign.records(setup)
    assert records["killed"] == records["undisturbed"]


@pytest.mark.slow
def test_briefs_of_later_rounds_name_changes_that_need_a_split(tmp_path: Path) -> None:
    """The agent, asked once, does not split it."""
    setup = create(tmp_path, tmp_path / "agent.py", rounds=2)
    (tmp_path / "agent.py").write_text(AGENT.replace("1.0 if split else 1.5", "1.5").replace(
        "split =", "print(Path(sys.argv[1]).read_text())\nsplit ="))
    assert killed_campaign.host(setup).wait(200) == 0
    assert [kind for kind, _ in decisions(setup)] == ["split"]
    assert campaigns.slots(setup)["fixed"][0] == "repeat"
    logs = {n: "".join(path.read_text() for path in setup.folder.round(n).rglob("*.log"))
            for n in (2, 3)}
    assert "## Kernel split" in logs[2] and "## Changes that need a split" not in logs[2]
    assert "## Changes that need a split" in logs[3]
    assert "n=32 2.00x faster; n=64 50.0% slower" in logs[3]
    with campaigns.reading(setup) as reader:
        assert [r.outcome for r in reader.rounds(setup.id)][:2] == ["baseline", "tie"]

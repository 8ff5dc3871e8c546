"""An engine that puts two gains onto the waiting line, or decides on the lower one."""

from __future__ import annotations

from pathlib import Path

from engine.history import waiting_line
from engine.journal import lease
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage import commit, provisional
from engine.lineage.commit import KeepReason
from engine.repository.campaign_repo import CampaignRepo
from tests.support import repos
from tests.support.dashboards import samples

REASON = "1.5x; a — asks because b 1.5x faster"
"""A judge's reason, with a class that has an odd name."""


def capture(writer: Writer, repo: CampaignRepo, name: str, line: int) -> None:
    """Record a verified candidate that changes a line of the tip."""
    tree = repo.worktree("fixed-1", repo.tip)
    kernel = tree / "kernel.c"
    kernel.write_text(repos.edited(kernel.read_text(), line, f"{name}();"))
    repo.store_candidate(name, repo.capture(tree, repo.tip).tree)
    writer.add_candidate(samples.candidate(
        name, base_commit=repo.tip, base_tree=repo.tree_of(repo.tip),
        patch_path=f"{name}.patch", state="verified"))


def add(writer: Writer, repo: CampaignRepo, name: str, line: int, *, asks: bool) -> None:
    """Capture a gain on the tip, unless it was captured, and put it onto the waiting line."""
    reader = Reader(writer.workspace)
    known = {candidate.id: candidate for candidate in reader.candidates("rms")}
    if name not in known:
        capture(writer, repo, name, line)
        known = {candidate.id: candidate for candidate in reader.candidates("rms")}
    if known[name].state == "verified" and known[name].base_commit == repo.tip:
        why = KeepReason(message=f"{name} faster", reason=REASON, actor="engine", round=1,
                         doubts="it is large" if name == "c1" else "")
        provisional.add(writer, repo, known[name], repo.candidate_tree(name), why, asks=asks)


def main(root: Path, verb: str) -> None:
    writer = Writer(root / "w")
    lease.acquire(writer, "rms")
    reader, repo = Reader(root / "w"), CampaignRepo(root / "w" / "rms", "rms", root / "user")
    repo.unlock()
    commit.recover(writer, repo)
    provisional.recover(writer, reader, repo)
    if verb == "add":
        add(writer, repo, "c1", 3, asks=True)
        add(writer, repo, "c2", 20, asks=False)
        return
    lower = reader.candidate("c1", "rms")
    if lower.state == "waiting" and waiting_line.read(reader, "rms"):
        if verb == "approve":
            provisional.approve(writer, reader, repo, lower, "ann")
        else:
            provisional.reject(writer, reader, repo, lower, reason="rejected by ann", actor="ann")

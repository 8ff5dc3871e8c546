"""The start of an engine: take the campaign, recover, keep the candidate c1 if it is verified."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.journal import lease
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage.commit import KeepReason, KeptCommit, commit_candidate, recover
from engine.repository.campaign_repo import CampaignRepo


def keep_first(writer: Writer, repo: CampaignRepo) -> KeptCommit:
    candidate = Reader(writer.workspace).candidate("c1", "rms")
    why = KeepReason(message="faster\n\nless traffic", reason="1.5x", actor="judge", round=1,
                     verdict=1)
    return commit_candidate(writer, repo, candidate, repo.candidate_tree("c1"), why)


def main(root: Path) -> None:
    writer = Writer(root / "w")
    lease.acquire(writer, "rms")
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    repo.unlock()
    recover(writer, repo)
    if Reader(root / "w").candidates("rms", states=("verified",)):
        keep_first(writer, repo)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

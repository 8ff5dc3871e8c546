"""A campaign in a user's repository with one kept commit."""

from __future__ import annotations

from pathlib import Path

from engine.journal.write import Writer
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Change
from tests.support import repos
from tests.support.dashboards import samples
from tests.support.programs.command_line import NAME

BRANCH = f"optimize/{NAME}"


def change(repo: CampaignRepo, line: int = 20) -> Change:
    tree = repo.worktree("s", repo.best)
    text = (tree / "kernel.c").read_text()
    (tree / "kernel.c").write_text(repos.edited(text, line, f"faster_{line}();"))
    return repo.capture(tree, repo.best)


def advance(repo: CampaignRepo, line: int = 20) -> str:
    best = repo.best
    commit = repo.commit(best, change(repo, line).tree, f"faster {line}")
    assert repo.advance(best, commit)
    return commit


def campaign(tmp_path: Path, *, publishes: bool = True) -> tuple[Path, CampaignRepo]:
    """Make a finished campaign with one kept commit: repository, folder and journal."""
    user = repos.project(tmp_path / "user")
    repo = CampaignRepo.create(tmp_path / "w" / NAME, NAME, user, publishes=publishes)
    base, commit = repo.base, advance(repo)
    assert repo.publish() == ""
    writer = Writer(tmp_path / "w")
    writer.add_campaign(samples.campaign(
        NAME, path=str(repo.folder), project=str(user), base_commit=base, best_commit=commit,
        state="finished"))
    writer.close()
    (repo.folder / "manifest.yaml").write_text(
        f"target_op: rmsnorm\nproject: {user}\ngit_commit: {str(publishes).lower()}\n")
    return user, repo

"""Campaigns keep their gain when worktrees vanish, locks remain, or the user is in mid-rebase."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from engine.repository.campaign_repo import BEST_FILE
from tests.support import repos
from tests.support.engines import campaigns


def user_files(user: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file of the user's folder except git objects and kopt's branch."""
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(user.rglob("*"))
            if p.is_file() and ".git/objects/" not in str(p) and "optimize" not in str(p)}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "stages"), [
    ("rm -rf {worktree}/* {worktree}/.git", {"reject", "repeat", "kept"}),
    ("cd {worktree} && mkdir -p build .triton && touch build/x.c .triton/k a.o run.sh",
     {"no change", "kept"}),
], ids=["vandal", "litterer"])
def test_gain_survives_damaged_worktrees_and_locks(tmp_path: Path, command: str,
                                                   stages: set[str]) -> None:
    setup = campaigns.create_with_patch(tmp_path, pool={
        "slots": 3, "workers": 1, "backends": ["inbox", "cli"],
        "cli": [{"name": "guest", "command": f"sh -c '{command}' {{prompt}}"}]})
    user = setup.repo.project
    repos.git(user, "switch", "-q", "-c", "other")
    repos.commit(user, {"scale.c": "// theirs\n"}, "theirs")
    repos.git(user, "switch", "-q", "main")
    repos.git(user, "branch", "-q", "start")
    repos.commit(user, {"scale.c": "// mine\n"}, "mine")
    subprocess.run(["git", "rebase", "other"], cwd=user, env=repos.ENVIRONMENT, check=False,
                   capture_output=True)
    (user / ".git" / "index.lock").write_text("")
    before = user_files(user)
    for name in (f"{setup.repo.ref}.lock", "packed-refs.lock"):
        (setup.repo.git_dir / name).write_text("")
        os.utime(setup.repo.git_dir / name, (1, 1))
    assert campaigns.run(setup).error is None
    [kept] = campaigns.candidates(setup, "kept")
    assert (setup.folder.path / BEST_FILE).read_text() == f"{kept.commit}\n"
    assert repos.git(user, "rev-parse", f"optimize/{setup.id}") == kept.commit
    assert user_files(user) == before
    slots = campaigns.slots(setup)
    assert {stage for stage, _ in slots.values()} == stages, slots


@pytest.mark.slow
def test_worktrees_deleted_during_a_round_end_no_campaign(tmp_path: Path) -> None:
    """Their workers fail with one line each, and the campaign ends in order."""
    setup = campaigns.create(tmp_path, pool={"slots": 2, "trials": 3, "workers": 2})
    gone = threading.Event()

    def clean() -> None:
        campaigns.until(lambda: list((setup.folder.path / "worktrees").glob("*/scale.c")))
        shutil.rmtree(setup.folder.path / "worktrees", ignore_errors=True)
        gone.set()

    thread = threading.Thread(target=clean)
    thread.start()
    engine = campaigns.run(setup)
    thread.join()
    assert gone.is_set() and engine.error is None
    assert campaigns.campaign(setup).state == "finished"
    assert all("\n" not in detail for _, detail in campaigns.slots(setup).values())
    campaigns.consistent(setup)

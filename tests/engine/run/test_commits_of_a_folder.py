"""A project in a folder of a repository: its commits can be candidate and incumbent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.repository.clone import Change
from engine.run.one_shot import OneShot, OneShotCandidate
from harness.errors import InputError
from tests.support import repos
from tests.support.engines import campaigns


def test_only_the_files_in_the_project_s_folder_of_a_commit_are_judged(tmp_path: Path) -> None:
    made = campaigns.project(tmp_path / "made")
    top = repos.project(tmp_path / "repo", {"README": "unrelated"})
    shutil.copytree(made.parent, top / "kernels", ignore=shutil.ignore_patterns(".git"))
    manifest = top / "kernels" / made.name
    manifest.write_text(manifest.read_text().replace(str(made.parent), str(top / "kernels")))
    repos.commit(top, {"other.c": "int x;\n"}, "kernels")
    source = (top / "kernels" / "scale.c").read_text()
    repos.commit(top, {"kernels/scale.c": source + "\n/* later */\n"}, "later")
    with OneShot(manifest, base="HEAD~1") as one_shot:
        change = one_shot.candidate(OneShotCandidate(ref="HEAD"))
        assert isinstance(change, Change) and [
            file.path for file in change.patch.files] == ["scale.c"]
        assert one_shot.repo.read(one_shot.judged.base_tree, "scale.c").decode() == source
    with pytest.raises(InputError, match=r"the folder kernels is not in the commit 'HEAD~2'"):
        OneShot(manifest, base="HEAD~2")

"""A candidate whose files cannot be written is rejected; the campaign continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.kernels import module_case


@pytest.mark.slow
def test_file_in_place_of_built_folder_rejects_candidate(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", carry=["lib/**"], edit=["scale.c", "lib"],
                                 pool={"slots": 1, "backends": ["inbox"]})
    repos.commit(tmp_path / "p", {".gitignore": "lib/\n"}, "built files are ignored")
    (tmp_path / "p" / "lib").mkdir()
    (tmp_path / "p" / "lib" / "built.txt").write_text("built\n")
    setup = campaigns.campaigns.create(tmp_path / "w", manifest)
    campaigns.hand_in(setup)
    (setup.folder.inbox / "clash.patch").write_text(
        "diff --git a/lib b/lib\nnew file mode 100644\n--- /dev/null\n+++ b/lib\n"
        "@@ -0,0 +1 @@\n+no folder any more\n")
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert ended.state == "finished" and ended.speedup is not None, ended.reason
    clash = next(candidate for candidate in campaigns.candidates(setup)
                 if "clash" in candidate.hypothesis)
    assert clash.state == "closed" and "cannot be written" in clash.reason, clash


def test_path_longer_than_the_systems_limit_is_input_error(tmp_path: Path) -> None:
    """Otherwise the engine ends, and so does each that resumes the campaign."""
    setup = module_case.create(tmp_path)
    tree = setup.repo.with_files(setup.repo.base, {f"{'d/' * 2500}x.py": b""})
    with pytest.raises(InputError, match="cannot create directory"):
        setup.tree(tree)
    assert not list(setup.trees.glob("*.part"))

"""`project_skill` names a committed file whose beginning is in every agent's prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import project_skill
from harness.errors import InputError
from tests.support import repos
from tests.support.engines import campaigns

FILES = ("a.c", "NOTES.md", "agent/skills/turbo/SKILL.md", "docs/other/SKILL.md")


@pytest.mark.parametrize(("name", "path"), [
    ("turbo", FILES[2]), ("agent/skills/turbo/", FILES[2]), (FILES[2], FILES[2]),
    ("./NOTES.md", "NOTES.md")])
def test_skill_is_named_by_file_folder_or_name(name: str, path: str) -> None:
    assert project_skill.find(name, FILES) == path


def test_unknown_skill_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no committed skill 'turbos'") as caught:
        project_skill.find("turbos", FILES)
    assert caught.value.fix == "did you mean 'turbo'?"
    with pytest.raises(InputError, match="no committed skill"):
        campaigns.create(tmp_path, project_skill="absent")


def test_brief_is_the_bounded_beginning_of_the_committed_file(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", project_skill="turbo")
    text = "Build with \x1b[1mmake\x1b[0m first.\n```\n" + "x" * 9000
    repos.commit(tmp_path / "p", {"skills/turbo/SKILL.md": text}, "a skill")
    setup = campaigns.campaigns.create(tmp_path / "w", manifest)
    (tmp_path / "p" / "skills" / "turbo" / "SKILL.md").write_text("not committed")
    brief = project_skill.brief(setup)
    assert brief.startswith("## The project's own notes\n\nskills/turbo/SKILL.md:\n\n"
                            "````markdown\nBuild with make first.\n```\nxxx")
    assert brief.endswith("…\n````\n"), "a block that is cut off would take in the rest"
    assert len(brief) < project_skill.MOST_CHARACTERS + 100

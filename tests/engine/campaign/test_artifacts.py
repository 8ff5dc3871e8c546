"""Archives of outputs: the oldest of closed candidates are removed first; of kept ones, none."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign import artifacts
from engine.campaign.artifacts import Artifacts
from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.write import Writer
from harness.errors import EnvironmentFault
from harness.isolation import raw_outputs
from tests.support.dashboards import samples


def pack(folder: Folder, outputs: Path, candidate: str, purpose: str = "verify",
         **files: str) -> Artifacts:
    outputs.mkdir(exist_ok=True)
    for name, text in (files or {"001-tests.stdout": "some output"}).items():
        (outputs / name).write_text(text)
    stored = artifacts.pack(outputs, folder, candidate=candidate, purpose=purpose, round=2,
                            device="cuda:0")
    assert stored is not None
    return stored


def test_oldest_archives_of_closed_candidates_are_removed_first(tmp_path: Path) -> None:
    folder, writer, reader = Folder.create(tmp_path / "rms"), Writer(tmp_path), Reader(tmp_path)
    writer.add_campaign(samples.campaign("rms", path=str(folder.path)))
    for name, state in (("kept", "kept"), ("lost1", "closed"), ("asks", "waiting"),
                        ("lost2", "closed"), ("lost3", "closed")):
        writer.add_candidate(samples.candidate(name, campaign="rms", state=state))
    room_for_four = 0
    for name in ("baseline", "kept", "lost1", "asks", "lost2", "lost3"):
        stored = pack(folder, tmp_path / "out", name,
                      **{f"004-{raw_outputs.PROFILE}": f"profile of {name}"})
        room_for_four = max(room_for_four, 4 * stored.bytes)
        artifacts.record(writer, reader, folder, "rms", stored, most_bytes=room_for_four)
    present = artifacts.of_campaign(reader, "rms")
    assert [archive.candidate for archive in present] == ["baseline", "kept", "asks", "lost3"]
    assert len(artifacts.of_campaign(reader, "rms", removed=True)) == 6
    names = {path.name for path in (folder.path / "rounds/round-2/artifacts").iterdir()}
    assert names == {f"{archive.candidate}.verify.tar.gz" for archive in present}
    profiles = {path.name for path in folder.profiles.iterdir()}
    assert profiles == {f"{archive.candidate}.verify.cuda-0.json" for archive in present}
    writer.close()


def test_unrecorded_archive_of_a_killed_engine_is_deleted(tmp_path: Path) -> None:
    folder, writer, reader = Folder.create(tmp_path / "rms"), Writer(tmp_path), Reader(tmp_path)
    writer.add_campaign(samples.campaign("rms", path=str(folder.path)))
    recorded, lost = (pack(folder, tmp_path / "out", name) for name in ("c1", "c2"))
    artifacts.record(writer, reader, folder, "rms", recorded)
    artifacts.remove_unrecorded(reader, folder, "rms")
    assert (folder.path / recorded.path).is_file() and not (folder.path / lost.path).exists()
    writer.close()


def test_large_file_among_the_outputs_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / "000-large").open("wb") as file:
        file.truncate(artifacts.READ_BYTES + 1)
    stored = pack(folder := Folder.create(tmp_path / "rms"), tmp_path / "out", "c1")
    assert list(artifacts.read(folder.path, stored)) == ["001-tests.stdout"]


def test_second_archive_of_a_candidate_does_not_replace_the_first(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "rms")
    first, second = (pack(folder, tmp_path / "out", "c1", "headline") for _ in range(2))
    assert first.path != second.path and first.sha256 == second.sha256


def test_kernel_profile_is_also_copied_to_the_profiles_folder(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "rms")
    stored = pack(folder, tmp_path / "out", "c1", **{f"004-{raw_outputs.PROFILE}": "{}"})
    assert stored.profile == "profiles/c1.verify.cuda-0.json"
    assert (folder.path / stored.profile).read_text() == "{}"


def test_changed_or_missing_archive_is_a_fault(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path / "rms")
    stored = pack(folder, tmp_path / "out", "c1")
    assert artifacts.read(folder.path, stored) == {"001-tests.stdout": b"some output"}
    (folder.path / stored.path).write_bytes(b"other")
    with pytest.raises(EnvironmentFault, match="changed since"):
        artifacts.read(folder.path, stored)
    (folder.path / stored.path).unlink()
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        artifacts.read(folder.path, stored)

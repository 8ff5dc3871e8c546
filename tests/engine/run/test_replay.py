"""The backend `replay`: a campaign judges earlier changes anew, and ends by itself after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from harness.errors import InputError
from tests.support.engines import campaigns, instant_verdicts


def replay(root: Path, source: str, **fields: object) -> Setup:
    """Make a campaign that replays a source."""
    return campaigns.create(root, pool={"backends": ["replay"], "replay": source},
                            max_iterations=None, **fields)


@pytest.fixture(autouse=True)
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)


def test_gain_of_an_earlier_campaign_is_judged_anew_and_the_campaign_ends(tmp_path: Path) -> None:
    earlier = campaigns.create_with_patch(tmp_path)
    campaigns.run(earlier)
    [found] = campaigns.candidates(earlier, "kept")
    manifest = tmp_path / "p" / "manifest.yaml"
    other = manifest.with_name("replay.yaml")
    other.write_text(manifest.read_text().replace("inbox", "replay").replace(
        "pool:", f"pool:\n  replay: {earlier.id}"))
    setup = campaigns.campaigns.create(tmp_path / "w", other)
    campaigns.run(setup)
    [kept] = campaigns.candidates(setup, "kept")
    assert kept.campaign == setup.id and found.id[:8] in kept.hypothesis + str(
        list((setup.folder.inbox / "taken").iterdir()))
    with campaigns.reading(setup) as reader:
        assert reader.verdicts(setup.id, candidate=kept.id)


def test_every_patch_of_a_folder_takes_a_slot_in_turn(tmp_path: Path) -> None:
    made = campaigns.create(tmp_path / "first")
    patches = tmp_path / "patches"
    patches.mkdir()
    for passes in range(2, 9):
        (patches / f"{passes}.patch").write_bytes(campaigns.patch(
            made, campaigns.KERNEL.replace("PASSES 16", f"PASSES {passes}")))
    setup = replay(tmp_path, str(patches))
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert ended.reason == f"nothing left to try: all changes of {patches} are judged"
    with campaigns.reading(setup) as reader:
        slots = [(slot.round, slot.slot) for slot in reader.slots(setup.id)]
    assert slots == [*((2, f"inbox-{n}") for n in range(1, 5)),
                     *((3, f"inbox-{n}") for n in range(1, 4))]
    assert b"PASSES 2" in setup.repo.read(setup.repo.best, "scale.c")
    assert not list(setup.folder.inbox.glob("*.patch"))


def test_unknown_source_is_one_line_and_leaves_no_campaign(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nowhere' is not a campaign, candidate, folder, commit"):
        replay(tmp_path, "nowhere")
    assert not [path for path in (tmp_path / "w").iterdir() if path.is_dir()]


@pytest.mark.parametrize("pool", [{"backends": ["replay"]}, {"replay": "main"}])
def test_backend_and_source_need_each_other(tmp_path: Path, pool: dict[str, object]) -> None:
    with pytest.raises(InputError, match="need each other"):
        campaigns.create(tmp_path, pool=pool)

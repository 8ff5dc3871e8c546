"""`kopt submit --from`: changes of other campaigns, folders or commits are judged from scratch."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign import setup as campaign_setup
from harness.search.space.tunable_source import TunableSource
from harness.search.trials import corpus
from kopt_tui.commands.submit import read_changes
from tests.support.engines import campaigns
from tests.support.programs.command_line import error_text, kopt


def second_campaign(root: Path) -> campaign_setup.Setup:
    """Return another campaign on the same project."""
    manifest = root / "p" / "manifest.yaml"
    other = manifest.with_name("second.yaml")
    other.write_text(manifest.read_text())
    return campaign_setup.create(root / "w", other)


def submit(setup: campaign_setup.Setup, source: str) -> list[Path]:
    """Run the verb; return all patch files in the inbox, also those already taken."""
    done = kopt("submit", "--from", source, setup.id, workspace=setup.workspace)
    assert done.returncode == 0, done.stderr
    return sorted(path for folder in (setup.folder.inbox, setup.folder.inbox / "taken")
                  if folder.is_dir() for path in folder.iterdir() if path.suffix == ".patch")


@pytest.mark.slow
def test_gain_of_an_earlier_campaign_is_measured_again(tmp_path: Path) -> None:
    earlier = campaigns.create_with_patch(tmp_path)
    campaigns.run(earlier)
    [found] = campaigns.candidates(earlier, "kept")
    setup = second_campaign(tmp_path)
    campaigns.run(setup)  # measures its baseline and finds an empty inbox
    [path] = submit(setup, earlier.id)
    assert found.id[:8] in path.name
    campaigns.until(lambda: campaigns.candidates(setup, "kept"))
    [kept] = campaigns.candidates(setup, "kept")
    with campaigns.reading(setup) as reader:
        rows = reader.verdicts(setup.id, candidate=kept.id)
    assert rows and all(row.at > found.created_at and row.campaign == setup.id for row in rows)


def test_folder_gives_one_patch_per_file_in_order_and_a_branch_gives_one(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["inbox"]})
    folder, patch = tmp_path / "patches", campaigns.patch(setup)
    folder.mkdir()
    for name in ("b.patch", "a.diff"):
        (folder / name).write_bytes(patch)
    (folder / "notes.txt").write_text("no patch")
    (folder / "link.patch").symlink_to(folder / "b.patch")
    project = tmp_path / "p"
    subprocess.run(["git", "-C", str(project), "switch", "-qc", "idea"], check=True)
    (project / "scale.c").write_text(campaigns.FASTER)
    subprocess.run(["git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@y",
                    "commit", "-qam", "one pass is enough"], check=True)
    with campaigns.reading(setup) as reader:
        chosen = reader.campaigns()[0]
        assert [change.name for change in read_changes(reader, chosen, str(folder))] \
            == ["a", "b"]
        [branch] = read_changes(reader, chosen, "idea")
    assert branch.hypothesis == "one pass is enough" and b"+#define PASSES 1" in branch.patch


def test_fastest_knobs_of_the_corpus_are_changes_of_the_best(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["inbox"]})
    op = setup.target.op
    source = TunableSource.parse(campaigns.KERNEL, language="c")
    record = corpus.Record(
        op=op, language="c", kernel=source.kernel_id(op), knobs={}, config={}, device="d", arch="a",
        classes=(), correctness="PASS", kept=False, candidate_id="", at="2026-11-28T00:00:00Z")
    for number, (config, log_ratio, correctness) in enumerate((
            ({"PASSES": 16, "FORWARD": 1}, 0.9, "PASS"),  # the present values
            ({"PASSES": 1, "FORWARD": 1}, 0.5, "PASS"), ({"PASSES": 1, "FORWARD": 2}, 0.7, "PASS"),
            ({"PASSES": 1, "FORWARD": 1}, 0.4, "PASS"), ({"PASSES": 16, "FORWARD": 2}, 2.0, "FAIL"),
            ({"PASSES": 3, "FORWARD": 2}, 3.0, "PASS"))):  # not among the choices any more
        corpus.append(setup.workspace / corpus.FILE, replace(
            record, config=config, log_ratio=log_ratio, correctness=correctness,
            candidate_id=f"c{number}"))
    with campaigns.reading(setup) as reader:
        first, second = read_changes(reader, reader.campaigns()[0], "corpus")
    assert (first.name, second.name) == ("corpus-c2", "corpus-c1")
    assert first.hypothesis == "measured in a search: PASSES 1, FORWARD 2"
    assert b"+#define PASSES 1 " in first.patch and b"+#define FORWARD 2 " in first.patch
    assert b"+#define FORWARD" not in second.patch


@pytest.mark.parametrize(("source", "message"), [
    ("nowhere", "is not a campaign, candidate, folder, commit or branch"),
    ("--output=/tmp/x", "is not a campaign, candidate, folder, commit or branch"),
    ("EMPTY", "the source has no change to judge"),
    ("SELF", "is the campaign that would judge the changes"),
])
def test_source_that_gives_no_change_is_a_one_line_error(
        source: str, message: str, tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["inbox"]})
    (tmp_path / "empty").mkdir()
    source = {"EMPTY": str(tmp_path / "empty"), "SELF": setup.id}.get(source, source)
    done = kopt("submit", f"--from={source}", setup.id, workspace=setup.workspace)
    assert done.returncode == 2 and message in error_text(done)
    assert not list(setup.folder.inbox.iterdir())

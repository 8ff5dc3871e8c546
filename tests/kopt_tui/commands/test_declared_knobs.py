"""Proposed knobs are declared only in a campaign's clone; a merge keeps or inlines them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign import declared_knobs
from engine.campaign.setup import Setup
from engine.journal.write import Writer
from engine.run import space_document
from engine.run.one_shot import OneShot
from harness.errors import InputError
from harness.search.space import knob_proposals
from kopt_tui.main import main
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.kernels import device_case
from tests.support.programs.command_line import answer, kopt

PLAIN = "\n".join(line.partition("  /*")[0].replace("PASSES", "UNROLL")
                  for line in campaigns.KERNEL.splitlines()) + "\n"


def project(path: Path, *, knobs: str = "keep") -> Path:
    """Make a project whose source declares no knob, with a patch that declares one."""
    manifest = campaigns.project(path, kernel=PLAIN, knobs=knobs)
    declared = knob_proposals.declare(PLAIN, knob_proposals.propose(PLAIN, "c"), "c")
    (path / "kopt_task").mkdir()
    (path / declared_knobs.PATCH).write_text(
        knob_proposals.patch(PLAIN, declared, "scale.c"))
    return manifest


def kept(manifest: Path, workspace: Path) -> Setup:
    """Make a campaign that has kept another value of the knob."""
    setup = campaigns.campaigns.create(workspace, manifest)
    tree = setup.repo.worktree("s", setup.repo.best)
    text = (tree / "scale.c").read_text()
    assert "#define UNROLL 16  // kopt: knob UNROLL in [4, 8, 16, 32, 64]" in text
    (tree / "scale.c").write_text(text.replace("UNROLL 16", "UNROLL 4"))
    repo = setup.repo
    commit = repo.commit(repo.best, repo.capture(tree, repo.best).tree, "Fewer")
    assert repo.advance(repo.best, commit)
    writer = Writer(workspace)
    writer.set_campaign(setup.id, kind="test", payload={}, best_commit=commit, state="finished")
    writer.close()
    return setup


def test_proposed_knobs_are_read_from_the_patch_and_the_source_is_unchanged(tmp_path: Path) -> None:
    with OneShot(project(tmp_path / "p")) as one_shot:
        assert [knob.name for knob in one_shot.source.knobs] == ["UNROLL"]
    assert (tmp_path / "p" / "scale.c").read_text() == PLAIN


@pytest.mark.parametrize(("knobs", "comment"), [("keep", True), ("inline", False)])
def test_merge_keeps_declarations_or_replaces_them_by_values(
        knobs: str, comment: bool, tmp_path: Path) -> None:
    setup = kept(project(tmp_path / "p", knobs=knobs), tmp_path / "w")
    log = setup.repo.git.run("log", "--format=%s", "-2", setup.repo.best).decode()
    assert log.splitlines() == ["Fewer", "declare knobs"]
    assert main(["merge", setup.id, "--workspace", str(tmp_path / "w")]) == 0
    text = (tmp_path / "p" / "scale.c").read_text()
    assert "#define UNROLL 4" in text and ("kopt: knob" in text) == comment
    assert knob_proposals.inlined(text) == PLAIN.replace("UNROLL 16", "UNROLL 4")


def test_manifest_can_disable_proposed_knobs(tmp_path: Path) -> None:
    with OneShot(project(tmp_path / "p", knobs="none")) as one_shot:
        assert one_shot.source.knobs == ()


def test_error_on_knobs_that_no_longer_fit_the_source_states_the_next_step(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p")
    repos.commit(tmp_path / "p", {"scale.c": "int x;\n"}, "another source")
    with pytest.raises(InputError, match=r"do not fit the source.*kopt new --force"):
        OneShot(manifest)


def with_table(path: Path, table: object, **fields: object) -> Path:
    manifest = campaigns.project(path, **fields, target={  # type: ignore[arg-type]
        "kind": "kernel", "task": "task.yaml", "knobs": "tuned.json"})
    (path / "tuned.json").write_text(json.dumps(table))
    return manifest


@pytest.mark.parametrize("kernel", [campaigns.KERNEL.replace("PASSES", "UNROLL"), PLAIN])
def test_tuning_table_of_the_manifest_gives_choices_and_first_trials(
        kernel: str, tmp_path: Path) -> None:
    manifest = with_table(tmp_path / "p", {"3000": {"UNROLL": 2}, "9": {"UNROLL": 4}},
                          kernel=kernel)
    with OneShot(manifest) as one_shot:
        unroll = next(knob for knob in one_shot.source.knobs if knob.name == "UNROLL")
        assert (unroll.value, unroll.choices) == (16, (2, 4, 16))
        assert [start["UNROLL"] for start in space_document.of(one_shot).starts] == [2, 4]
    assert (tmp_path / "p" / "scale.c").read_text() == kernel


def test_table_without_a_knob_of_the_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no knob of scale\.c is in the table"):
        OneShot(with_table(tmp_path / "p", [{"num_warps": 4}]))


@pytest.mark.slow
@device_case.needs_nvcc
def test_new_proposes_a_cuda_constant_only_if_two_other_values_compile(tmp_path: Path) -> None:
    source = device_case.LAUNCHER.replace("  // kopt: knob TILE in [128, 256, 512]", "").replace(
        "#define TILE 256", "#define TILE 256\n#define BLOCK 64\nstatic_assert(BLOCK < 128);")
    folder = repos.project(tmp_path / "p", {"kernel.cu": source,
                                            "reference.py": device_case.REFERENCE})
    done = kopt("new", "kernel.cu", "--entry", "twice", "--shape", "x=n", "--shape", "out=n",
                "--scalar", "factor=2", "--class", "odd: n=331", "--device", "cpu", "--yes",
                "--json", cwd=folder)
    names = [each["name"] for each in answer(done)["proposed_knobs"]]
    assert names == ["TILE"]
    assert "kopt: knob TILE" in (folder / declared_knobs.PATCH).read_text()
    assert (folder / "kernel.cu").read_text() == source

"""No worker changes anything outside its slot, and no key of kopt's environment is written down.

Each attack of `hostile_agent.SCRIPTS` is a real process in a worktree of its own.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal import database
from engine.manifest.pool_schema import CliSpec
from engine.workers import cli
from engine.workers.cli import CliWorker
from engine.workers.protocol import WorkerBench
from harness.errors import InputError
from harness.isolation import guard
from tests.engine.workers.test_workers import HARM
from tests.support.agents import hostile_agent, streaming_agent, worker_bench
from tests.support.engines import campaigns
from tests.support.paths import SUPPORT

AGENT = SUPPORT / "agents/hostile_agent.py"
PLANTED = "sk-planted-0123456789abcdef"
NEVER_PASSED = "sk-not-passed-0123456789"


NEIGHBOUR = "neighbour"
"""A slot that is not attacked, beside each that is."""


def slot_bench(setup: Setup, name: str) -> WorkerBench:
    worktree, scratch = setup.repo.worktree(name, setup.repo.base), setup.folder.fresh_scratch(name)
    return worker_bench.bench(
        setup.target, setup.device, worktree, scratch, baseline="", base_commit=setup.repo.base,
        edit=("scale.c",),
        hidden=(*database.files(setup.workspace), str(scratch.parent), str(worktree.parent)))


def with_neighbour(root: Path) -> Setup:
    """Make a campaign in which a slot has files in its worktree and its scratch folder."""
    setup = campaigns.create(root)
    bench = slot_bench(setup, NEIGHBOUR)
    (Path(bench.worktree) / "scale.c").write_text("its candidate")
    (Path(bench.scratch) / "worker.log").write_text("its log")
    return setup


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setup, dict[str, str], str]:
    """Return a campaign, the result of each attack, and the digests from before all attacks."""
    root = tmp_path_factory.mktemp("attacked")
    setup, marker = with_neighbour(root), root / "harm"
    before, results = outside_of_slots(setup), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED_API_KEY", PLANTED)
        patch.setenv("ANOTHER_API_KEY", NEVER_PASSED)
        for name in hostile_agent.SCRIPTS:
            results[name] = outcome(setup, attacker(name, marker), name)
    return setup, results, before


def attacker(name: str, marker: Path) -> CliWorker:
    return CliWorker([CliSpec(name=name, timeout_s=60, env=("PLANTED_API_KEY",), command=(
        f"{{python}} {AGENT} {name} {{prompt}} {marker}"))])


def outcome(setup: Setup, worker: CliWorker, name: str) -> str:
    """Return the files of the candidate that an attack leaves, or why there is none."""
    bench, ticks = slot_bench(setup, name), list[str]()
    task = worker_bench.task("cli", slot=name, option=name)
    report = worker.work(task, bench, lambda *tick: ticks.append(str(tick)), threading.Event())
    reported = f"{report.summary} {report.hypothesis} {' '.join(ticks)}"
    assert report.patch is None and PLANTED not in reported and NEVER_PASSED not in reported
    assert report.summary.isprintable() and report.hypothesis.isprintable()
    try:
        change = setup.repo.capture(Path(bench.worktree), setup.repo.base, bench.edit)
    except InputError as error:
        return f"refused: {error}"
    finally:
        setup.repo.remove(name)
    return " ".join(sorted(file.path for file in change.patch.files))


def outside_of_slots(setup: Setup) -> str:
    """Return the digests of what no worker may change.

    That is the project, the clone, the records, the journal, and the files of another slot.
    """
    user, campaign = setup.repo.project, setup.folder.path
    clone, bench = campaign / "repo.git", campaign / "scratch" / NEIGHBOUR
    paths = [user, bench, campaign / "worktrees" / NEIGHBOUR,
             Path(database.files(setup.workspace)[0]),
             *(campaign / name for name in ("manifest.yaml", "rounds", "inbox", "profiles")),
             clone / "config", clone / "hooks", clone / "refs", clone / "packed-refs"]
    files = [path for each in paths
             for path in ([each] if each.is_file() else sorted(each.rglob("*")))]
    return "\n".join(
        f"{path} {path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files if path.is_file())


@pytest.mark.parametrize("name", hostile_agent.SCRIPTS)
def test_attack_leaves_no_change_of_the_kernel(
        attacked: tuple[Setup, dict[str, str], str], name: str) -> None:
    result = attacked[1][name]
    assert result.startswith("refused: ") or "scale.c" not in result.split(), result


def test_at_least_sixty_hostile_behaviours_are_tested() -> None:
    streams = ("torn", "huge", "nonsense", "escapes", "secret", "endless")
    assert set(streams) <= set(vars(streaming_agent)) and set(HARM) <= set(vars(hostile_agent))
    assert len(hostile_agent.SCRIPTS) + len(HARM) + len(("kills", *streams)) >= 60


def test_attacks_leave_project_and_clone_unchanged(
        attacked: tuple[Setup, dict[str, str], str]) -> None:
    setup, _, before = attacked
    if reason := guard.confinement_problem():
        pytest.skip(f"workers cannot be confined here: {reason}")
    assert outside_of_slots(setup) == before
    assert not list(setup.workspace.rglob("outside")) and not (
        setup.workspace.parent / "harm").exists()
    assert campaigns.processes(setup.workspace) == []
    with campaigns.reading(setup) as reader:
        assert not reader.controls(setup.id)  # the settings that `approves` asked for


@pytest.mark.parametrize("name", ["other-slots", "project", "journal"])
def test_attack_without_confinement_is_noticed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Else `test_attacks_leave_project_and_clone_unchanged` could not fail."""
    (root := tmp_path / "1/2/3/4").mkdir(parents=True)  # the attacks climb up
    setup = with_neighbour(root)
    before = outside_of_slots(setup)
    monkeypatch.setattr(cli, "Confine", lambda **_: None)
    outcome(setup, attacker(name, root / "harm"), name)
    assert outside_of_slots(setup) != before


def test_keys_are_in_no_file_of_the_workspace(
        attacked: tuple[Setup, dict[str, str], str]) -> None:
    files = [path for path in attacked[0].workspace.rglob("*")
             if path.is_file() and not path.is_symlink()]
    logs = [path for path in files if path.name == "worker.log"]
    assert any("[PLANTED_API_KEY]" in path.read_text() for path in logs)
    for key in (PLANTED, NEVER_PASSED):
        assert not [path for path in files if key.encode() in path.read_bytes()]

"""`kopt run` at a terminal shows the start of a campaign until its baseline is measured."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.run import host
from kopt_tui.cli import event_stream
from tests.support.dashboards.recorded_workspace import execute
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import converse, kopt


def test_failing_reference_is_reported_before_kopt_run_returns(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", reference=(
        "import numpy as np\ndef scale(x):\n    raise ValueError('no such table')\n"))
    status, screen = converse(["run", str(manifest), "--workspace", str(tmp_path / "w")], {})
    assert status == 1
    assert "no such table" in screen.partition(": failed,")[2], screen


def test_campaign_is_run_by_its_name_from_inside_the_workspace(tmp_path: Path) -> None:
    """`kopt demo` and `kopt run FOLDER --each` start campaigns in this way too."""
    setup = campaigns.create(tmp_path, reference="raise ValueError('no such table')\n")
    done = kopt("run", setup.id, "--wait", workspace=Path(), cwd=setup.workspace)
    assert f"{setup.id} runs in process" in done.stdout, done.stderr
    assert done.returncode == 1 and "no such table" in done.stdout


@pytest.mark.parametrize(("reply", "campaigns_after"), [("continue", 1), ("new", 2)])
def test_manifest_of_an_interrupted_campaign_continues_it_if_the_person_says_so(
        reply: str, campaigns_after: int, tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, reference="raise ValueError('no such table')\n")
    execute(setup.workspace, "UPDATE campaigns SET state = 'running', round = 3")
    status, screen = converse(
        ["run", str(tmp_path / "p/manifest.yaml"), "--workspace", str(setup.workspace)],
        {"[continue]: ": reply})
    assert status == 1 and "was interrupted in round 3" in " ".join(screen.split()), screen
    with closing(Reader(setup.workspace)) as reader:
        assert len(reader.campaigns()) == campaigns_after
        assert reader.campaigns()[0].state == "failed"
        assert (reader.campaigns()[0].id == setup.id) is (reply == "continue")


def test_manifest_of_an_interrupted_campaign_starts_another_without_a_terminal(
        tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, reference="raise ValueError('no such table')\n")
    execute(setup.workspace, "UPDATE campaigns SET state = 'running', round = 3")
    done = kopt("run", str(tmp_path / "p/manifest.yaml"), "--wait", workspace=setup.workspace)
    assert f"kopt resume {setup.id} continues it" in " ".join(done.stderr.split())
    assert f"{setup.id}-2 runs in process" in done.stdout


def test_interrupted_wait_says_that_the_campaign_goes_on(tmp_path: Path) -> None:
    manifest, workspace = campaigns.project(tmp_path / "p", max_iterations=9), tmp_path / "w"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "run", str(manifest), "--wait", "--workspace",
         str(workspace)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert waiting.stdout is not None
    while "campaign created" not in waiting.stdout.readline():
        assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=30)
    with closing(Reader(workspace)) as reader:
        [started] = reader.campaigns()
    assert waiting.returncode == 130 and errors == (
        f"\nit continues without this terminal; kopt attach {started.id} shows it, "
        f"kopt stop {started.id} ends it\n")
    assert host.owner(workspace, started.id) is not None
    campaigns.command("stop", started.id, workspace=workspace)
    campaigns.until(lambda: host.owner(workspace, started.id) is None)


def test_progress_is_printed_while_there_are_no_events(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    setup = campaigns.create(tmp_path)
    monkeypatch.setattr(event_stream, "QUIET_S", 0.0)
    phases = iter(("BASELINE: timing pair 2 of 18", "BASELINE: timing pair 2 of 18",
                   "BASELINE: timing pair 3 of 18"))
    with closing(Writer(setup.workspace)) as writer, closing(Reader(setup.workspace)) as reader:
        def is_running() -> bool:
            if phase := next(phases, ""):
                writer.tick_campaign(setup.id, phase=phase)
            return bool(phase)

        event_stream.EventPrinter(reader, setup.id).follow(is_running)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "timing" in line] == [
        "BASELINE: timing pair 2 of 18", "BASELINE: timing pair 3 of 18"]


@pytest.mark.slow
def test_campaign_goes_on_without_the_terminal_after_its_baseline(tmp_path: Path) -> None:
    manifest, workspace = campaigns.project(tmp_path / "p", max_iterations=9), tmp_path / "w"
    status, screen = converse(["run", str(manifest), "--workspace", str(workspace)], {})
    assert status == 0 and "it continues without this terminal" in screen, screen
    assert "baseline: small" in screen and "round 3" not in screen
    with closing(Reader(workspace)) as reader:
        [started] = reader.campaigns()
    campaigns.command("stop", started.id, workspace=workspace)
    campaigns.until(lambda: host.owner(workspace, started.id) is None)

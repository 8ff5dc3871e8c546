"""No trial fails because the initial configuration or the card no longer works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.errors import DeviceFault, IncumbentFault
from harness.loop.loop import loop
from harness.loop.screening import Screening
from harness.loop.trial_process import LoadedTrial, TrialProcess
from harness.loop.trial_turns import RunningTrial
from harness.search.space.tunable_source import TunableSource
from harness.search.trials import corpus
from harness.search.trials.trials import SearchJob
from harness.settings import Settings
from harness.tasks.target import ConfigClass
from tests.support.kernels.kernel_case import target, tree
from tests.support.paths import ROOT
from tests.support.programs import shared_zygotes
from tests.support.searches import trial_turn_case

FLAGS = """
LOST, SICK = {lost!r}, {sick!r}

def broken():
    if os.path.exists(LOST) or (MODE == 0 and os.path.exists(SICK)):
        {how}
"""
DIES, RAISES = "os._exit(9)", "raise RuntimeError('CUDA error: uncorrectable ECC error')"


class Broken:
    """A screening with failing configurations.

    The initial one fails while the file `sick` exists, every one while `lost` exists.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, how: str) -> None:
        self.sick, self.lost = folder / "sick", folder / "lost"
        flags = FLAGS.format(lost=str(self.lost), sick=str(self.sick), how=how)
        source = trial_turn_case.WORK.replace("\ndef double(x, out):\n",
                                              f"{flags}\ndef double(x, out):\n    broken()\n")
        self.screen = trial_turn_case.open_screening(folder, 60.0, source)
        self.patch = patch

    def measure(self, mode: str) -> tuple[str, str]:
        found = trial_turn_case.measure(self.screen, mode)
        return found.correctness, found.reason

    def recover_on_restart(self) -> None:
        """Let the initial configuration work again in the next process."""
        restart = TrialProcess.restart

        def restart_repaired(process: TrialProcess) -> None:
            self.sick.unlink(missing_ok=True)
            restart(process)

        self.patch.setattr(TrialProcess, "restart", restart_repaired)

    def break_during_trial(self) -> None:
        """Let the initial configuration fail once a trial has run its first blocks."""
        first = RunningTrial.first

        def first_then_break(trial: RunningTrial) -> dict[str, float]:
            found = first(trial)
            self.sick.touch()
            return found

        self.patch.setattr(RunningTrial, "first", first_then_break)


@pytest.fixture(params=[
    pytest.param(DIES, id="dies"), pytest.param(RAISES, id="raises", marks=pytest.mark.slow)])
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
           request: pytest.FixtureRequest) -> Iterator[Broken]:
    made = Broken(tmp_path, monkeypatch, request.param)
    with made.screen:
        yield made


def test_failing_initial_configuration_ends_the_loop_and_fails_no_trial(broken: Broken) -> None:
    broken.sick.touch()
    with pytest.raises(IncumbentFault, match="the loop's initial configuration does not run"):
        broken.measure("fast")
    broken.sick.unlink()
    assert broken.measure("fast")[0] == "PASS", "the bench works again when the start does"


def test_failed_initial_configuration_is_tried_in_another_process(broken: Broken) -> None:
    broken.sick.touch()
    broken.recover_on_restart()
    assert broken.measure("fast") == ("PASS", "")


def test_incumbent_that_fails_during_a_trial_does_not_fail_the_trial(broken: Broken) -> None:
    assert broken.measure("start")[0] == "PASS"
    broken.recover_on_restart()
    broken.break_during_trial()
    assert broken.measure("fast") == ("PASS", "")


def test_initial_configuration_that_keeps_failing_is_a_fault_of_the_card(broken: Broken) -> None:
    assert broken.measure("start")[0] == "PASS"
    broken.break_during_trial()
    broken.patch.setattr(broken.screen.session, "on_cpu", False)
    with pytest.raises(DeviceFault, match="ran there before and now fails"):
        broken.measure("fast")


def test_trial_fails_if_it_breaks_the_initial_configuration_repeatedly(broken: Broken) -> None:
    """Without this trial the initial configuration runs: the card works. The next trial passes."""
    assert broken.measure("start")[0] == "PASS"
    broken.recover_on_restart()
    with broken.patch.context() as patch:
        reload, first = TrialProcess.reload, RunningTrial.first

        def reload_and_break(process: TrialProcess, trial: LoadedTrial) -> None:
            reload(process, trial)
            broken.sick.touch()

        patch.setattr(TrialProcess, "reload", reload_and_break)
        broken.break_during_trial()
        correctness, reason = broken.measure("fast")
        broken.patch.setattr(RunningTrial, "first", first)
    assert correctness == "FAIL" and "the incumbent failed while it was timed" in reason
    assert broken.measure("little")[0] == "PASS"


def test_loss_of_the_card_during_a_trial_is_a_device_fault_and_no_failed_trial(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Broken(tmp_path, monkeypatch, DIES)
    with made.screen:
        assert (made.measure("start")[0], made.measure("fast")[0]) == ("PASS", "PASS")
        load = TrialProcess.load

        def load_and_lose_card(process: TrialProcess, trial: LoadedTrial) -> None:
            if trial.number:
                made.lost.touch()
            load(process, trial)

        monkeypatch.setattr(TrialProcess, "load", load_and_lose_card)
        monkeypatch.setattr(made.screen.session, "on_cpu", False)
        with pytest.raises(DeviceFault):
            made.measure("little")


def test_trial_that_ends_the_process_fails_if_the_initial_configuration_works(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Broken(tmp_path, monkeypatch, DIES)
    with made.screen:
        assert made.measure("dies") == ("FAIL", "exited with 9")


CRASHES = """#include <stdint.h>
#include <stdlib.h>
#define MODE 0  // kopt: knob MODE in [0, 1, 2]
void double_it(const float *x, float *out, int64_t n) {
    if (MODE == 0) abort();
    for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];
}
"""


def test_crashing_initial_configuration_adds_nothing_to_the_corpus(tmp_path: Path) -> None:
    """As the kernels are in C, each side runs in its own process."""
    at = tree(tmp_path / "tree", "")
    (Path(at) / "kernel.c").write_text(CRASHES)
    task = target(language="c", source="kernel.c", entry="double_it",
                  args=(*target().args, ), classes=(ConfigClass(name="one", shape={"n": 4096}),))
    learnt = tmp_path / "corpus.jsonl"
    with pytest.raises(IncumbentFault, match="the loop's initial configuration does not run"):
        loop(
            task,
            SearchJob(tree=at, reference=at, budget=3, corpus=str(learnt)),
            inventory.find("cpu"),
            Settings(scratch=str(tmp_path / "scratch")),
        )
    assert not corpus.read(learnt, op=task.op, end=corpus.size(learnt)).records


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.searches import trial_turn_case
from harness.loop.trial_turns import RunningTrial

with trial_turn_case.open_screening(Path(sys.argv[1]), 60.0) as screen:
    trial_turn_case.measure(screen, "start")
    RunningTrial.first = lambda trial: os.kill(os.getpid(), signal.SIGKILL)
    trial_turn_case.measure(screen, "fast")
"""


@pytest.mark.slow
def test_files_of_a_killed_loop_do_not_block_the_next(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ran.returncode == -signal.SIGKILL
    assert (tmp_path / "scratch" / "turns" / "2").is_dir(), "the killed loop left a file"
    (tmp_path / "tree").rename(tmp_path / "before")
    with trial_turn_case.open_screening(tmp_path, 60.0) as screen:
        assert [
            trial_turn_case.measure(screen, mode).correctness for mode in ("start", "fast")
        ] == ["PASS", "PASS"]


def test_partial_tree_of_a_killed_loop_is_not_used(tmp_path: Path) -> None:
    source = "from helps import twice\nN = 1  # kopt: knob N in [1, 2]\n" \
        "def double(x, out):\n    twice(x, out)\n"
    at = tree(tmp_path / "tree", source)
    (Path(at) / "helps.py").write_text("def twice(x, out):\n    out.copy_(2 * x)\n")
    (tmp_path / "scratch" / "trial").mkdir(parents=True)
    with Screening(target(language="python"), SearchJob(tree=at, reference=at),
            inventory.find("cpu"),
                Settings(scratch=str(tmp_path / "scratch")),
                TunableSource.parse(source, language="python"),
                zygote=shared_zygotes.zygote("python")) as screen:
        found = screen.measure({"N": 2})
    assert (found.correctness, found.reason) == ("PASS", "")

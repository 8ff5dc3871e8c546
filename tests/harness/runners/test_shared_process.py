"""Both kernels run in one process, as on a card that allows only one; here on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from harness.devices.monitoring import interference
from harness.devices.monitoring.telemetry_sources import ONE_PROCESS, SharingMode
from harness.evaluate.evaluate import evaluate
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied
from harness.runners.shared_process import SharedProcess
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.kernels.kernel_case import target, tree

pytestmark = pytest.mark.slow
TARGET = target(language="python", args=(
    Arg(name="x", dtype="float32", shape=("n", "n")),
    Arg(name="out", dtype="float32", shape=("n", "n"), role="output")),
    classes=(ConfigClass(name="one", shape={"n": 96}), ConfigClass(name="two", shape={"n": 64})))
KERNEL = "import torch\nfrom helper import TIMES\ndef double(x, out):\n" \
    "    for _ in range(TIMES):\n        torch.mul(x, 2, out=out)\n"

LATE = KERNEL.replace("from helper import TIMES\n", "").replace(
    "    for", "    from helper import TIMES\n    for")


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "require_usable", lambda device: SharingMode(
        one_process=True, note=ONE_PROCESS))


def side(folder: Path, name: str, times: int, source: str = KERNEL) -> str:
    folder_path = tree(folder / name, source + f"# {name}\n")
    (Path(folder_path) / "helper.py").write_text(f"TIMES = {times}\n")
    return folder_path


def verdict_of(folder: Path, candidate: str, incumbent: str, **settings: object) -> Verdict:
    defaults: dict[str, object] = {"scratch": str(folder / "scratch"),
                                   "plan": Plan(looks=(4,), alpha=0.01),
                                   "distributions": ("normal",), "static_audit": False}
    return evaluate(TARGET, Trees(candidate=candidate, incumbent=incumbent, reference=incumbent),
                    inventory.find("cpu"), Settings(**(defaults | settings)))  # type: ignore[arg-type]


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(("times", "outcome", "source"), [
    (10, "faster", KERNEL), (90, "slower", KERNEL), (10, "faster", LATE)],
    ids=["faster", "slower", "imported late"])
def test_each_side_runs_its_own_modules(times: int, outcome: str, source: str,
                                        tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, side(tmp_path, "candidate", times, source),
                         side(tmp_path, "incumbent", 30, source))
    assert verdict.valid and verdict.correct, verdict
    sign = 1 if outcome == "faster" else -1  # the true ratio is 3, the threshold 1.5
    assert all(sign * (row.log_ratio or 0.0) > 0.4 for row in verdict.rows), verdict
    assert ONE_PROCESS in verdict.notes
    assert [finding for finding in verdict.audit if finding.severity == "reject"] == []


@pytest.mark.usefixtures("one_process")
def test_wrong_or_crashing_candidate_is_judged_as_usual(tmp_path: Path) -> None:
    base = side(tmp_path, "incumbent", 3)
    wrong = verdict_of(tmp_path, side(tmp_path, "wrong", 3, KERNEL.replace("x, 2", "x, 3")), base)
    assert wrong.valid and not wrong.correct
    dying = KERNEL + "import os\nos._exit(3)\n"
    dead = verdict_of(tmp_path, side(tmp_path, "dead", 3, dying), base)
    assert not dead.valid and "exited with 3" in (dead.rejected_reason or "")
    late = KERNEL.replace("(x, out):\n", "(x, out):\n    global calls\n    calls += 1\n"
                          "    if calls > 60: raise ValueError('enough')\n") + "calls = 0\n"
    failed = verdict_of(tmp_path, side(tmp_path, "late", 3, late), base)
    assert not failed.valid and "enough" in (failed.rejected_reason or "")


def test_runner_that_cannot_leave_a_dead_process_is_dropped(tmp_path: Path) -> None:
    """The next kernel then starts a new process."""
    peer = Peer("run.runner", cwd=tmp_path, limits=Limits(wall_s=60.0))
    shared = SharedProcess(peer)
    runner = shared.join("a")
    peer.kill()
    with pytest.raises(PeerDied):
        runner.vacate()
    assert shared.runners == []
    peer.close()


def test_process_ends_with_its_last_runner(tmp_path: Path) -> None:
    peer = Peer("run.runner", cwd=tmp_path, limits=Limits(wall_s=60.0))
    shared = SharedProcess(peer)
    first, second = shared.join("a"), shared.join("b")
    for runner in (first, second):
        assert runner.ask("ready", language="python", device="cpu", interpret=False)["torch"]
    first.kill()
    assert first.close().ended == "exit" and shared.runners == [second]
    assert second.ask("ready", language="python", device="cpu", interpret=False)["torch"]
    second.close()
    assert shared.runners == []
    with pytest.raises(PeerDied):
        second.ask("ready", language="python", device="cpu", interpret=False)

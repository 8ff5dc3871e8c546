"""Both kernels in one process, as where a card takes no second one; here on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from harness.devices.monitoring.telemetry_nvidia import ONE_PROCESS
from harness.evaluate.evaluate import evaluate
from harness.isolation.guard import Limits
from harness.isolation.rpc import Peer, PeerDied
from harness.runners.shared_process import SharedProcess
from harness.settings import Settings, Trees
from harness.target import Arg, ConfigClass
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.kernel_case import target, tree

pytestmark = pytest.mark.slow
OF = target(language="python", args=(
    Arg(name="x", dtype="float32", shape=("n", "n")),
    Arg(name="out", dtype="float32", shape=("n", "n"), role="output")),
    classes=(ConfigClass(name="one", shape={"n": 96}), ConfigClass(name="two", shape={"n": 64})))
KERNEL = "import torch\nfrom helper import TIMES\ndef double(x, out):\n" \
    "    for _ in range(TIMES):\n        torch.mul(x, 2, out=out)\n"

LATE = KERNEL.replace("from helper import TIMES\n", "").replace(
    "    for", "    from helper import TIMES\n    for")


def side(folder: Path, name: str, times: int, source: str = KERNEL) -> str:
    made = tree(folder / name, source + f"# {name}\n")
    (Path(made) / "helper.py").write_text(f"TIMES = {times}\n")
    return made


def judged(folder: Path, candidate: str, incumbent: str, **settings: object) -> Verdict:
    given: dict[str, object] = {"scratch": str(folder / "scratch"), "in_process": True,
                                "plan": Plan(looks=(4,), alpha=0.01), "distributions": ("normal",),
                                "static_audit": False}
    return evaluate(OF, Trees(candidate=candidate, incumbent=incumbent, reference=incumbent),
                    inventory.find("cpu"), Settings(**(given | settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("times", "outcome", "source"), [
    (10, "faster", KERNEL), (90, "slower", KERNEL), (10, "faster", LATE)],
    ids=["faster", "slower", "imported late"])
def test_each_side_runs_its_own_modules(times: int, outcome: str, source: str,
                                        tmp_path: Path) -> None:
    verdict = judged(tmp_path, side(tmp_path, "candidate", times, source),
                     side(tmp_path, "incumbent", 30, source))
    assert verdict.valid and verdict.correct, verdict
    sign = 1 if outcome == "faster" else -1  # three times, whatever else the machine does
    assert all(sign * (row.log_ratio or 0.0) > 0.4 for row in verdict.rows), verdict
    assert ONE_PROCESS in verdict.notes
    assert [one for one in verdict.audit if one.severity == "reject"] == []


def test_a_candidate_that_is_wrong_or_dies_is_judged_as_ever(tmp_path: Path) -> None:
    base = side(tmp_path, "incumbent", 3)
    wrong = judged(tmp_path, side(tmp_path, "wrong", 3, KERNEL.replace("x, 2", "x, 3")), base)
    assert wrong.valid and not wrong.correct
    dead = judged(tmp_path, side(tmp_path, "dead", 3, KERNEL + "import os\nos._exit(3)\n"), base)
    assert not dead.valid and "exited with 3" in (dead.rejected_reason or "")
    late = KERNEL.replace("(x, out):\n", "(x, out):\n    global calls\n    calls += 1\n"
                          "    if calls > 60: raise ValueError('enough')\n") + "calls = 0\n"
    failed = judged(tmp_path, side(tmp_path, "late", 3, late), base)
    assert not failed.valid and "enough" in (failed.rejected_reason or "")


def test_one_that_cannot_be_told_to_leave_leaves_all_the_same(tmp_path: Path) -> None:
    """Its process has died: who comes next begins another one."""
    peer = Peer("runner", cwd=tmp_path, limits=Limits(wall_s=60.0))
    bench = SharedProcess(peer)
    seat = bench.seat("a")
    peer.kill()
    with pytest.raises(PeerDied):
        seat.vacate()
    assert bench.taken == []
    peer.close()


def test_the_last_to_leave_ends_the_process(tmp_path: Path) -> None:
    peer = Peer("runner", cwd=tmp_path, limits=Limits(wall_s=60.0))
    bench = SharedProcess(peer)
    first, second = bench.seat("a"), bench.seat("b")
    for seat in (first, second):
        assert seat.ask("ready", language="python", device="cpu", interpret=False)["torch"]
    first.kill()
    assert first.close().ended == "exit" and bench.taken == [second]
    assert second.ask("ready", language="python", device="cpu", interpret=False)["torch"]
    second.close()
    assert bench.taken == []
    with pytest.raises(PeerDied):
        second.ask("ready", language="python", device="cpu", interpret=False)

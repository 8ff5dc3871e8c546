"""Runners that are started before they are needed: fresh, guarded, and under the device lock."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.case import Case
from harness.compile import kernel
from harness.compile.kernel import Kernel
from harness.devices import inventory
from harness.isolation import device_lock
from harness.isolation.rpc import Peer
from harness.runners import context_queue
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from tests.support.kernel_case import target
from tests.support.processes import until

LONG_S = 120.0
SOURCE = "import os\ndef double(x, out):\n    out.fill_(os.getpid())\n"


def made(folder: Path, name: str = "candidate", source: str = SOURCE) -> Kernel:
    of = target(language="python")
    (folder / "kernel.py").write_text(source)
    place = kernel.place_on(
        inventory.find("cpu"), "python", scratch=str(folder), env={}, python=None
    )
    return kernel.make(of, folder, name, place)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_started_ahead_and_every_one_fresh(tmp_path: Path) -> None:
    one = made(tmp_path)
    with RunnerPool(PYTHON_LIMITS, ahead=2) as runners:
        runners.expect(one, 5)
        waiting = [peer._guarded.pid for peer in runners._waiting["candidate"]]
        assert len(waiting) == 2
        first = runners.start(one)
        second = runners.start(one, refill=2)
        assert [first._guarded.pid, second._guarded.pid] == waiting
        assert len(runners._waiting["candidate"]) == 2
        later = [peer._guarded.pid for peer in runners._waiting["candidate"]]
        assert not set(later) & set(waiting)
        first.close()
        second.close()
    assert not any(running(pid) for pid in waiting + later)


@pytest.mark.parametrize(("asleep", "told"), [(False, ["ready"]), (True, [])])
def test_what_sleeps_looks_for_no_card_before_it_is_taken(
        asleep: bool, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    send = Peer.send
    monkeypatch.setattr(Peer, "send", lambda self, op, **fields: [
        asked.append(op), send(self, op, **fields)][1])
    with RunnerPool(PYTHON_LIMITS, ahead=1) as runners:
        one = made(tmp_path)
        runners.expect(one, 1, asleep=asleep)
        assert asked == told
        runners.start(one)
        assert asked == ["ready", "load"]


def test_a_lock_handed_over_is_held_until_the_runner_is_dead(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    one = made(tmp_path)
    with RunnerPool(PYTHON_LIMITS, ahead=1) as runners:
        runners.expect(one, 1)  # before there is a lock
        held = device_lock.acquire("gpu-test")
        peer = runners.start(one, lock=held)
        held.release()
        assert device_lock.holder("gpu-test") is not None
        peer.close()
        deadline = time.monotonic() + 60.0
        while device_lock.holder("gpu-test") is not None and time.monotonic() < deadline:
            pass
        assert device_lock.holder("gpu-test") is None


def test_a_rehearsal_that_hangs_ends_with_its_runners(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    begun = tmp_path / "home-candidate" / "begun"
    hung = made(tmp_path, source=f"open({str(begun)!r}, 'w')\nwhile True: pass\n")
    case = Case(id="c", config_class="c", distribution="normal", tensors=())
    with device_lock.acquire("gpu-test") as held:
        with RunnerPool(PYTHON_LIMITS) as runners:
            runners.rehearse(hung, held, case)
            assert until(begun.exists)
            began = time.monotonic()
        assert time.monotonic() - began < 20.0 < PYTHON_LIMITS.wall_s
        assert runners.spans == {}


@pytest.mark.parametrize("hurry", ["taken", "settled"])
def test_what_settles_is_taken_with_its_context_though_its_turn_has_not_come(
        hurry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU nobody makes a context: what would is noted, all else is as there."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    made_by: list[Peer] = []
    ask = Peer.ask
    monkeypatch.setattr(Peer, "ask", lambda self, op, **fields: made_by.append(self)
                        if op == "context" else ask(self, op, **fields))
    one = made(tmp_path)
    with device_lock.acquire("gpu-test") as held, context_queue.urgent(), \
            RunnerPool(PYTHON_LIMITS, ahead=3) as runners:
        monkeypatch.setattr(context_queue, "PATIENCE_S", LONG_S)
        began = time.monotonic()
        runners.expect(one, 3, asleep=True)
        runners.settle(held)
        if hurry == "settled":
            runners.settled()
            assert len(made_by) == 3
        peers = runners.start_all([one, one], lock=held)
        assert time.monotonic() - began < LONG_S / 2
        assert set(peers) <= set(made_by)
        runners.end(peers)


def test_a_context_that_could_not_be_made_beside_the_check_is_no_kernels_fault(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    one = made(tmp_path)
    with device_lock.acquire("gpu-test") as held, RunnerPool(PYTHON_LIMITS, ahead=1) as runners:
        runners.expect(one, 1, asleep=True)
        [waiting] = runners._waiting["candidate"]
        runners.settle(held)
        runners.settled()  # here there is no card to make one on
        taken = runners.start(one, lock=held)
        assert taken is not waiting and running(taken._guarded.pid)
        runners.end([taken])


def test_who_waited_for_long_is_not_taken(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit runs while it idles, as behind tests of minutes, and would end it amid its work."""
    one = made(tmp_path)
    with RunnerPool(PYTHON_LIMITS, ahead=2) as runners:
        runners.expect(one, 2)
        old, young = runners._waiting["candidate"]
        runners._opened[old] -= PYTHON_LIMITS.wall_s / 2
        assert runners.start(one) is young and not runners._waiting["candidate"]
    assert not running(old._guarded.pid)


@pytest.mark.parametrize("how", ["abandon", "close", "forget"])
def test_what_waits_for_its_turn_never_comes_to_a_card_that_is_given_back(
        how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    asked: list[str] = []
    send = Peer.send
    monkeypatch.setattr(Peer, "send", lambda self, op, **fields: [
        asked.append(op), send(self, op, **fields)][1])
    one = made(tmp_path)
    runners = RunnerPool(PYTHON_LIMITS, ahead=3)
    with device_lock.acquire("gpu-test") as held, context_queue.urgent():
        monkeypatch.setattr(context_queue, "PATIENCE_S", LONG_S)
        runners.expect(one, 3, asleep=True)
        runners.settle(held)
        began = time.monotonic()
        {"abandon": runners.abandon, "close": runners.close,
         "forget": lambda: runners.forget(one)}[how]()
    runners.close()
    assert asked == [] and time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize(("call", "processes"), [("pass", 1), ("os._exit(3)", 2)],
                         ids=["one serves all classes", "one that dies is replaced"])
def test_a_side_is_rehearsed_in_one_process(
        call: str, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context and a profiler cost a process more than the classes that it then sees."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    seen = tmp_path / "home-candidate" / "seen"
    one = made(tmp_path, source=f"""import os
seen = open({str(seen)!r}, "a", buffering=1)
print("loaded by", os.getpid(), file=seen)
def double(*given):
    print("called by", os.getpid(), file=seen)
    {call}
""")
    with device_lock.acquire("gpu-test") as held, RunnerPool(PYTHON_LIMITS) as runners:
        for name in ("first", "second"):
            runners.rehearse(one, held, Case(id=name, config_class=name, distribution="normal",
                                             tensors=()))
        runners.rehearsed()
        told = [line.rsplit(" ", 1) for line in seen.read_text().splitlines()]
        assert [words for words, _ in told].count("loaded by") == processes
        assert [words for words, _ in told].count("called by") >= 2, told
        assert runners.spans == {}  # nothing is profiled where there is no GPU


@pytest.mark.parametrize(("one_queue", "given", "wanted"), [
    (False, {}, None), (True, {}, "1"), (True, {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, "4")])
def test_who_has_one_stream_alone_has_one_queue_unless_the_user_says(
        one_queue: bool, given: dict[str, str], wanted: str | None, tmp_path: Path) -> None:
    source = f"import os\nassert os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == {wanted!r}\n"
    one = made(tmp_path, source=source + "def double(x, out):\n    pass\n")
    one = replace(one, place=replace(one.place, env={**one.place.env, **given}))
    with RunnerPool(PYTHON_LIMITS) as runners:
        runners.one_queue = one_queue
        runners.start(one).close()

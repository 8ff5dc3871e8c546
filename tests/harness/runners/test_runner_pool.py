"""Runners are started before they are needed; each is used once and holds the device lock."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import kernel
from harness.compile.kernel import Kernel
from harness.compile.place import place_on
from harness.devices import inventory
from harness.isolation import device_lock
from harness.isolation.rpc import Peer
from harness.runners import context_queue
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from tests.support.kernels.kernel_case import Bench, target
from tests.support.programs import shared_zygotes
from tests.support.programs.processes import until

LONG_S = 120.0
SOURCE = "import os\ndef double(x, out):\n    out.fill_(os.getpid())\n"


def make_kernel(folder: Path, name: str = "candidate", source: str = SOURCE) -> Kernel:
    python_target = target(language="python")
    (folder / "kernel.py").write_text(source)
    place = place_on(inventory.find("cpu"), "python", scratch=str(folder), env={},
                     python=None)
    return kernel.make(python_target, folder, name,
                       replace(place, zygote=shared_zygotes.zygote("python")))


def pool(ahead: int = 0) -> RunnerPool:
    return RunnerPool(PYTHON_LIMITS, ahead=ahead)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_runners_are_started_ahead_and_used_once(tmp_path: Path) -> None:
    built = make_kernel(tmp_path)
    with pool(ahead=2) as runners:
        runners.prestart(built, 5)
        waiting = [peer._guarded.pid for peer in runners._waiting["candidate"]]
        assert len(waiting) == 2
        first = runners.start(built)
        second = runners.start(built, refill=2)
        assert [first._guarded.pid, second._guarded.pid] == waiting
        assert len(runners._waiting["candidate"]) == 2
        later = [peer._guarded.pid for peer in runners._waiting["candidate"]]
        assert not set(later) & set(waiting)
        first.close()
        second.close()
    assert not any(running(pid) for pid in waiting + later)


@pytest.mark.parametrize(("asleep", "expected"), [(False, ["ready"]), (True, [])])
def test_sleeping_runner_does_not_touch_the_card_before_it_is_used(
        asleep: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    send = Peer.send
    monkeypatch.setattr(Peer, "send", lambda self, op, *descriptors, **fields: [
        requests.append(op), send(self, op, *descriptors, **fields)][1])
    with pool(ahead=1) as runners:
        built = make_kernel(tmp_path)
        runners.prestart(built, 1, asleep=asleep)
        assert requests == expected
        runners.start(built)
        assert requests == ["ready", "load"]


def test_passed_lock_is_held_until_the_runner_is_dead(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    built = make_kernel(tmp_path)
    with pool(ahead=1) as runners:
        runners.prestart(built, 1)  # no lock is held yet
        held = device_lock.acquire("gpu-test")
        peer = runners.start(built, lock=held)
        held.release()
        assert device_lock.holder("gpu-test") is not None
        peer.close()
        assert until(lambda: device_lock.holder("gpu-test") is None)


def test_hanging_profiling_run_ends_with_the_pool(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    hung = make_kernel(tmp_path, source="open('started', 'w')\nwhile True: pass\n")
    with closing(Bench(tmp_path / "bench", target(language="python")).oracle) as oracle, \
            device_lock.acquire("gpu-test") as held:
        case = oracle.make(oracle.target.classes[0], "normal")
        with pool() as runners:
            runners.profile(hung, held, case, oracle)
            assert until(lambda: any(tmp_path.glob("runners/*/started")))
            start = time.monotonic()
        assert time.monotonic() - start < 20.0 < PYTHON_LIMITS.wall_s
        assert runners.profiles == {}


@pytest.mark.parametrize("trigger", ["used", "awaited"])
def test_needed_runner_makes_its_context_before_its_turn(
        trigger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test records the requests for a context; without a GPU, no context is created."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    with_context: list[Peer] = []
    ask = Peer.ask
    monkeypatch.setattr(Peer, "ask", lambda self, op, **fields: with_context.append(self)
                        if op == "context" else ask(self, op, **fields))
    built = make_kernel(tmp_path)
    with device_lock.acquire("gpu-test") as held, context_queue.urgent(), \
            pool(ahead=3) as runners:
        monkeypatch.setattr(context_queue, "PATIENCE_S", LONG_S)
        start = time.monotonic()
        runners.prestart(built, 3, asleep=True)
        runners.create_contexts(held)
        if trigger == "awaited":
            runners.wait_contexts()
            assert len(with_context) == 3
        peers = runners.start_all([built, built], lock=held)
        assert time.monotonic() - start < LONG_S / 2
        assert set(peers) <= set(with_context)
        runners.end(peers)


def test_runner_without_a_context_is_replaced(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    built = make_kernel(tmp_path)
    with device_lock.acquire("gpu-test") as held, pool(ahead=1) as runners:
        runners.prestart(built, 1, asleep=True)
        [waiting] = runners._waiting["candidate"]
        runners.create_contexts(held)
        runners.wait_contexts()  # without a card, no context is created
        runner = runners.start(built, lock=held)
        assert runner is not waiting and running(runner._guarded.pid)
        runners.end([runner])


def test_runner_that_waited_too_long_is_not_used(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner's time limit includes its wait, so the limit could end it while it works."""
    built = make_kernel(tmp_path)
    with pool(ahead=2) as runners:
        runners.prestart(built, 2)
        old, young = runners._waiting["candidate"]
        runners.starter._started[old] -= PYTHON_LIMITS.wall_s / 2
        assert runners.start(built) is young and not runners._waiting["candidate"]
    assert not running(old._guarded.pid)


@pytest.mark.parametrize("how", ["end_waiting", "close", "discard"])
def test_waiting_runners_never_use_a_released_card(
        how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    requests: list[str] = []
    send = Peer.send
    monkeypatch.setattr(Peer, "send", lambda self, op, *descriptors, **fields: [
        requests.append(op), send(self, op, *descriptors, **fields)][1])
    built = make_kernel(tmp_path)
    runners = pool(ahead=3)
    with device_lock.acquire("gpu-test") as held, context_queue.urgent():
        monkeypatch.setattr(context_queue, "PATIENCE_S", LONG_S)
        runners.prestart(built, 3, asleep=True)
        runners.create_contexts(held)
        start = time.monotonic()
        {"end_waiting": runners.end_waiting, "close": runners.close,
         "discard": lambda: runners.discard(built)}[how]()
    runners.close()
    assert requests == [] and time.monotonic() - start < LONG_S / 2


@pytest.mark.parametrize(("call", "processes"), [("pass", 1), ("os._exit(3)", 2)],
                         ids=["one serves all classes", "one that dies is replaced"])
def test_one_process_profiles_all_classes_of_a_side_unless_it_dies(
        call: str, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context and a profiler take longer to start than all classes take to profile."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    requests: list[str] = []
    send = Peer.send
    built = make_kernel(tmp_path, source=f"import os\ndef double(*arguments):\n    {call}\n")
    with closing(Bench(tmp_path / "bench", target(language="python")).oracle) as oracle, \
            device_lock.acquire("gpu-test") as held, pool() as runners:
        case = oracle.make(oracle.target.classes[0], "normal")
        monkeypatch.setattr(Peer, "send", lambda self, op, *descriptors, **fields: [
            requests.append(op), send(self, op, *descriptors, **fields)][1])
        for name in ("first", "second"):
            runners.profile(built, held, replace(case, config_class=name), oracle)
        runners.wait_profiles()
        assert requests.count("load") == processes
        assert requests.count("prepare") >= 2, requests
        assert runners.profiles == {}  # without a GPU, nothing is profiled


@pytest.mark.parametrize(("one_queue", "variables", "expected"), [
    (False, {}, None), (True, {}, "1"), (True, {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, "4")])
def test_single_stream_kernel_has_one_queue_unless_the_user_sets_it(
        one_queue: bool, variables: dict[str, str], expected: str | None, tmp_path: Path) -> None:
    source = f"import os\nassert os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == {expected!r}\n"
    built = make_kernel(tmp_path, source=source + "def double(x, out):\n    pass\n")
    built = replace(built, place=replace(built.place, env={**built.place.env, **variables}))
    with pool() as runners:
        runners.starter.one_queue = one_queue
        runners.start(built).close()

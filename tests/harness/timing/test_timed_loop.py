"""The compiled loop calls kernels of any signature, and seals the time that it reports."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from harness.child.memory.host_memory import HostMemory
from harness.child.run.c_kernel import CKernel
from harness.child.run.compiled_loop import CompiledLoop, order_of
from harness.compile import c_compiler, timed_loop
from harness.isolation.send_times import SendTimes
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.timed_block import TamperedTiming, sealed, timed_block

SOURCE = """
#include <stdint.h>
void mixed(const float *x, double a, float b, int64_t c, int32_t d, float *out, int8_t e, uint8_t f,
           int64_t g, int64_t h) {
    out[0] = x[0] + a + b + c + d + e + f + g + h;
}
"""
SCALARS = {"a": ("float64", 0.5), "b": ("float32", 0.25), "c": ("int64", 1 << 20),
           "d": ("int32", -7), "e": ("int8", -3), "f": ("uint8", 250),
           "g": ("int64", 5), "h": ("int64", 6)}
ARGS = tuple(
    Arg(name=name, dtype=SCALARS[name][0], value=SCALARS[name][1]) if name in SCALARS
    else Arg(name=name, dtype="float32", shape=(1,), role="output" if name == "out" else "input")
    for name in ("x", "a", "b", "c", "d", "out", "e", "f", "g", "h"))
TARGET = Target(op="mixed", language="c", source="k.c", entry="mixed",
                reference="reference.py:mixed", args=ARGS,
                classes=(ConfigClass(name="one", shape={}),))
SLOT, SLOTS = 64, 5


AWAITED: list[str] = []


@ctypes.CFUNCTYPE(ctypes.c_int)
def AWAIT_GPU() -> int:
    """Replace the driver's wait for the GPU; report a failure if `fail` has been recorded."""
    AWAITED.append("driver")
    return "fail" in AWAITED


class Opened:
    """The loop in this process, with its owner's end of the channel."""

    def __init__(self, target: Target, scratch: Path, *, gpu: bool) -> None:
        self.owner, self.channel = socket.socketpair()
        self.stamps = SendTimes()
        self.key = secrets.token_bytes(16)
        reading, writing = os.pipe()
        os.write(writing, self.key)
        os.close(writing)
        self.loop = CompiledLoop(str(timed_loop.library(target, scratch)),
                                 self.channel.fileno(), [reading, self.stamps.theirs.fileno()],
                                 gpu=gpu,
                                 await_gpu=AWAIT_GPU if gpu else None)

    def start(self) -> int:
        """Send the start message that the loop will wait for; return its 8 bytes as a number."""
        word = secrets.token_bytes(8)
        self.owner.sendall(word)
        return int.from_bytes(word, "little")

    def drain(self) -> None:
        """Remove a start message that the loop has not read."""
        self.channel.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.channel.recv(16)
        self.channel.setblocking(True)

    def answers(self) -> list[dict[str, int]]:
        return [json.loads(line) for line in self.owner.recv(1 << 16).splitlines()]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Opened(TARGET, tmp_path_factory.mktemp("scratch"), gpu=False)


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A loop opened for a GPU, on a machine that may have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Opened(replace(TARGET, language="python"), tmp_path_factory.mktemp("s"), gpu=True)


def test_c_kernel_gets_every_kind_of_argument(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(SOURCE)
    library = tmp_path / "k.so"
    kernel = CKernel({"artifact": str(library), "entry": "mixed",
                      "sha256": c_compiler.build(TARGET, tmp_path, library)}, opened.loop)
    memory = HostMemory.create(SLOT * SLOTS)
    floats = (ctypes.c_float * (SLOT * SLOTS // 4)).from_address(memory.address)
    tensors = [{"role": arg.kind, "dtype": arg.dtype, "value": arg.value,
                "offset": 8 if arg.name == "out" else 0} for arg in ARGS]
    rows = kernel.rows(tensors, [memory.address + slot * SLOT for slot in range(SLOTS)])
    for slot in range(SLOTS):
        floats[slot * SLOT // 4] = 100.0 * slot
    word = opened.start()
    opened.loop.block(kernel.function, rows, order_of([4, 0, 2]), stop=False)
    ready, report = opened.answers()
    assert ready == {} and report["seal"] == sealed(opened.key, word, report["ns"])
    expected = sum(value for _, value in SCALARS.values())
    assert [floats[slot * SLOT // 4 + 2] for slot in range(SLOTS)] == [
        expected, 0, expected + 200, 0, expected + 400]


def test_steps_of_a_gpu_surround_the_calls(on_gpu: Opened) -> None:
    word, steps = on_gpu.start(), AWAITED
    steps.clear()
    around = [None, lambda: steps.append("ready"), lambda: steps.append("begin"),
              lambda: steps.append("end"), lambda: steps.append("await"), lambda: 1.5]
    returned = on_gpu.loop.python_block(lambda a, b: steps.append("call") or a + b,
                                        [(1, 2), (3, 4)], around, stop=False)
    assert returned == [3, 7]
    assert steps == ["ready", "begin", "call", "call", "end", "await", "driver"]
    assert on_gpu.answers()[1] == {"ns": 1_500_000, "seal": sealed(on_gpu.key, word, 1_500_000)}


def test_no_time_is_reported_if_the_gpu_fails(on_gpu: Opened) -> None:
    on_gpu.start()
    try:
        with pytest.raises(OSError, match="the GPU failed"):
            on_gpu.loop.python_block(lambda: AWAITED.append("fail"), [()], [None] * 6, stop=False)
        assert on_gpu.answers() == [{}]
    finally:
        AWAITED.clear()


def test_block_that_fetches_contents_waits_for_two_start_messages(on_gpu: Opened) -> None:
    on_gpu.start(), on_gpu.start()
    fetched: list[int] = []
    on_gpu.loop.python_block(int, [()], [lambda: fetched.append(1), *[None] * 5], stop=False)
    assert fetched and on_gpu.answers()[:2] == [{}, {}]


@pytest.mark.parametrize("step", range(5))
def test_steps_for_a_gpu_are_refused_without_a_gpu(step: int, opened: Opened) -> None:
    """A candidate that reaches the loop from Python could work or wait in such a step."""
    opened.start(), opened.start()
    steps: list[Any] = [None] * 6
    steps[step] = pytest.fail
    with pytest.raises(OSError, match="needs a GPU"):
        opened.loop.python_block(int, [()], steps, stop=False)
    opened.answers()
    opened.drain()


def test_clock_of_a_gpu_is_ignored_without_a_gpu(opened: Opened) -> None:
    opened.start()
    opened.loop.python_block(int, [()], [None] * 5 + [lambda: 1e6], stop=False)
    assert opened.answers()[1]["ns"] < 1_000_000_000


def test_operating_system_stamps_when_calls_begin_and_end(opened: Opened) -> None:
    opened.start()
    opened.stamps.take_ns()
    opened.loop.python_block(time.sleep, [(0.02,)], [None] * 6, stop=False)
    began, ended = opened.stamps.take_ns()
    reported = opened.answers()[1]["ns"]
    assert 20_000_000 < reported <= ended - began + 2_000_000  # both include only the calls


def test_error_of_a_call_is_raised_and_no_time_is_reported(opened: Opened) -> None:
    opened.start()
    with pytest.raises(ZeroDivisionError):
        opened.loop.python_block(lambda a: 1 // a, [(1,), (0,)], [None] * 6, stop=False)
    assert opened.answers() == [{}]


def test_signal_handlers_are_reset_before_a_block(opened: Opened) -> None:
    """A handler would run after the block, before the returned values are copied."""
    before = signal.signal(signal.SIGURG, lambda *_: None)
    try:
        opened.start()
        opened.loop.python_block(lambda: os.kill(os.getpid(), signal.SIGURG), [()], [None] * 6,
                                 stop=False)
        assert len(opened.answers()) == 2
        assert not caught_signals() >> (signal.SIGURG - 1) & 1
    finally:
        signal.signal(signal.SIGURG, before)


def caught_signals() -> int:
    return next(int(line.split()[1], 16) for line in Path("/proc/self/status").read_text(
        ).splitlines() if line.startswith("SigCgt"))


def test_call_that_sets_a_signal_handler_reports_no_time(opened: Opened) -> None:
    opened.start()
    try:
        with pytest.raises(OSError, match="signal handler"):
            opened.loop.python_block(lambda: signal.signal(signal.SIGURG, lambda *_: None), [()],
                                     [None] * 6, stop=False)
        assert opened.answers() == [{}]
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def test_key_cannot_be_replaced(opened: Opened) -> None:
    library = ctypes.PyDLL(str(timed_loop.library(TARGET, Path())))
    assert library.kopt_open(1, -1, 1, None, -1, 0) == 0
    word = opened.start()
    opened.loop.python_block(int, [()], [None] * 6, stop=False)
    report = opened.answers()[1]
    assert report["seal"] == sealed(opened.key, word, report["ns"])


def test_seal_is_siphash() -> None:
    """Compare with the test vector that SipHash's authors give for 16 bytes."""
    key, message = bytes(range(16)), bytes(range(16))
    first, second = (int.from_bytes(part, "little") for part in (message[:8], message[8:]))
    assert sealed(key, first, second) == 0x3F2ACC7F57C29BDB >> 2


@pytest.mark.parametrize("seal", [0, "é", "\ud800", None, [], 1e300, True])
def test_report_with_a_wrong_seal_is_refused_as_tampered(seal: Any) -> None:
    """Native code can write any JSON to the channel."""
    peer = SimpleNamespace(key=bytes(16), stamps=None, asked_ns=0, elapsed_ns=1 << 40,
                           post=lambda data: None, send=lambda *of, **fields: None,
                           receive=lambda **_: {"ns": 1000, "seal": seal})
    with pytest.raises(TamperedTiming, match="did not measure"):
        timed_block(peer, "case", [0], "wall")  # type: ignore[arg-type]


class FakeEvent:
    """An event of a GPU; `log` lists the calls of its methods."""

    log: ClassVar[list[str]] = []

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.log.append("record")

    def elapsed_time(self, end: FakeEvent) -> float:
        self.log.append("elapsed")
        return 2.5


@pytest.mark.parametrize(("mode", "within", "reported"), [
    ("launch", ["call 1", "call 0"], True), ("graph", ["replay"], True),
    ("wall", ["call 1", "call 0"], False)])
def test_block_of_a_gpu_is_timed_by_events_or_by_the_host(
        mode: str, within: list[str], reported: bool, on_gpu: Opened,
        monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run import time_python

    log = FakeEvent.log = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    kernel = SimpleNamespace(loop=on_gpu.loop,
                             function=lambda number: log.append(f"call {number}") or number)
    case = SimpleNamespace(
        kernel=kernel, on_gpu=True, run_on=lambda order: log.append(f"first {order}"),
        copies=[SimpleNamespace(arguments=[number], returned=None) for number in range(3)],
        synchronize=lambda: log.append("synchronize"),
        graphs={2: (SimpleNamespace(replay=lambda: log.append("replay")), [1, 0])})
    on_gpu.start()
    time_python.block(case, {"order": [1, 0], "mode": mode, "unit": 2, "fetch": False,
                             "stop": False})
    around = ["record"] if reported else []
    assert log == ["first [2]", "synchronize", "synchronize", *around, *within, *around,
                   "synchronize", *(["elapsed"] if reported else [])]
    assert (on_gpu.answers()[1]["ns"] == 2_500_000) is reported
    assert [copy.returned for copy in case.copies] == [0, 1, None]

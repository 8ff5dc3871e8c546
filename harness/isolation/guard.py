"""The only way to run an untrusted process: under a supervisor with limits.

The supervisor (harness/child/supervise/supervisor.py) ends with its job or with its owner: when
this process dies, the socket between them closes, and the supervisor kills all its descendants
before it releases the device lock that it holds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.child.supervise.supervisor import KEPT
from harness.formats.json_codec import from_json, to_builtins
from harness.isolation import (
    process_tree,
    raw_outputs,
    shared_zygotes,
    supervisor_start,
)
from harness.isolation.confinement import Confine, journals_above
from harness.isolation.device_lock import DeviceLock, Turnstile, lock_directory
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.isolation.process_tree import CpuTime
from harness.isolation.supervisor_start import KeptProcess
from harness.isolation.turn_watch import POLL_S, WaitReporter
from harness.isolation.zygote_client import PROGRAM, ForkedSupervisor, Zygote

INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
             "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_HOME", "ROCM_PATH",
             "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
KEPT_S = 1.0
"""Seconds that `leave` waits until the supervisor has forwarded the job's output so far."""


@functools.cache
def confinement_problem() -> str:
    """Return why this machine cannot confine processes; empty if it can."""
    with open(os.devnull) as nothing:
        outcome = run([sys.executable, "-I", "-S", str(PROGRAM), "supervise.confine", "-1"],
                      cwd=Path("/"), env=clean_env(), limits=Limits(wall_s=60.0),
                      pass_fds=[nothing.fileno()], program="supervise.confine", name="trial",
                      zygote=shared_zygotes.zygote(shared_zygotes.SUPERVISORS))
    return "" if outcome.ok else outcome.stdout.decode().strip() or "no reason is given"


def clean_env(extra: Mapping[str, str] | None = None, *,
              home: Path | None = None) -> dict[str, str]:
    """Return the allow-listed environment of an untrusted process, without kopt's secrets."""
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if home is not None:
        env |= {"HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    return env | dict(extra or {})


class Guarded:
    """A running guarded process. Use as a context manager, or call `kill` and `wait`.

    With a zygote, `program` (one of harness/child, or a file) runs in a fork that has imported all
    it needs, with the arguments `words`, by default its descriptors. Without one, or if the zygote
    has ended, `argv` is started. Its raw outputs are kept under `name`, by default the program's
    name. `wall_s` returns the current wall-clock limit, which replaces that in `limits`.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str],
                 limits: Limits | None = None, confine: Confine | None = None,
                 lock: DeviceLock | None = None, yields: Turnstile | None = None,
                 pass_fds: Sequence[int] = (), on_line: Callable[[bytes], None] | None = None,
                 on_wait: Callable[[str], None] | None = None, zygote: Zygote | None = None,
                 program: str = "", words: Sequence[str] = (), name: str = "",
                 wall_s: Callable[[], float] | None = None,
                 kept: KeptProcess | None = None) -> None:
        self.limits, self._wall_s = limits or Limits(), wall_s
        self._name, self._argv = name or program or Path(argv[0]).name, argv
        self._on_line, self._next_poll = on_line, 0.0
        self._waits = WaitReporter(yields, on_wait) if yields and on_wait else None
        self._line, self._waiting = bytearray(), threading.Lock()
        self._outputs: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._outcome: ProcessOutcome | None = None
        self._paused, self._known = False, set[int]()  # the job's pids when it was last paused
        held = lock.fds if lock else ()
        self._control, self._process = supervisor_start.take_over(
            kept, held, zygote) if kept else supervisor_start.start(
                {"argv": list(argv), "words": list(words), "cwd": os.path.abspath(cwd),
                 "env": dict(env), **self.limits.job(),
                 "confine": to_builtins(confine) if confine else None,
                 "yields": list(yields.paths) if yields else None,
                 "hidden": [str(lock_directory()), *confine.hidden, *journals_above(
                     str(cwd), *confine.writable)] if confine else []},
                pass_fds, held, zygote, program, env.get("PATH", ""))

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self._process.pid

    @property
    def never_started(self) -> bool:
        """Whether the process never started, because the zygote died before forking it."""
        return self._process.pid == 0

    def hold(self, lock: DeviceLock) -> None:
        """Pass a device lock to the supervisor, which holds it until its job is dead or left."""
        self._order(b"lock\n", lock.fds)

    def exempt(self, exempt: bool) -> None:
        """Let a yielding job run during this process's measurements; False ends the exemption."""
        self._order(b"run\n" if exempt else b"yield\n")

    def apply_wall_limit(self) -> None:
        """Apply the current wall-clock limit."""
        if self._wall_s is None or (wall_s := self._wall_s()) == self.limits.wall_s:
            return
        self.limits = replace(self.limits, wall_s=wall_s)
        self._order(b"wall_s %f\n" % wall_s)

    def _order(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # the supervisor has ended: `wait` reports how
            socket.send_fds(self._control, [line], list(descriptors))

    def leave(self, requests: int, seconds: float, give: Callable[[KeptProcess], bool]) -> bool:
        """Leave the job and `requests`, its request socket, to a new owner; False if that fails.

        `give` stores the job for the new owner and returns whether it could. The supervisor
        releases device locks, and ends the job if no owner takes it over within `seconds`.
        """
        process = self._process
        if not isinstance(process, ForkedSupervisor) or process.poll() is not None:
            return False
        printed = process.printed()
        self._order(b"keep %f\n" % seconds)
        if select.select([self._control], [], [], KEPT_S)[0] and not self._control.recv(len(KEPT)):
            return False
        raw_outputs.keep(f"{self._name}.output", printed + process.printed())
        if not give(KeptProcess(self.pid, requests, self._control.fileno(), *process.descriptors)):
            return False
        process.let_go()
        self._control.close()
        return True

    def pause(self, *, stops_itself: bool = False) -> None:
        """Stop the job until `resume`; its wall-clock limit keeps running.

        A job that `stops_itself` gets a moment to do so: if paused before that, it would stop
        itself after `resume`.
        """
        if not self._paused:
            if stops_itself:
                process_tree.await_any_still(self._known)
            self._known = process_tree.stop(self.pid, self._known)
            self._paused = True

    def resume(self) -> None:
        """Let the job run again; this takes microseconds, unlike `pause`."""
        if self._paused:
            self._paused = False
            process_tree.resume(self._known)

    def cpu_times(self) -> dict[int, CpuTime]:
        """Return the CPU time of the paused job's processes."""
        return process_tree.cpu_times(self._known)

    def wake(self) -> None:
        """Resume a job that is not paused: it may have stopped itself after `resume`."""
        if not self._paused:
            process_tree.resume(self._known)

    def kill(self) -> None:
        """Tell the supervisor to end its job; `wait` then returns soon."""
        with contextlib.suppress(OSError):  # it may have ended already
            self._control.shutdown(socket.SHUT_WR)

    def wait(self, *, cancel: threading.Event | None = None,
             timeout_s: float | None = None) -> ProcessOutcome:
        """Collect the output until the process has ended; `cancel` ends it early.

        Raises TimeoutError after `timeout_s`; the process then continues.
        """
        if not self._waiting.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError  # another thread is in `wait`
        try:
            return self._outcome or self._pump(cancel, timeout_s)
        finally:
            self._waiting.release()

    def _pump(self, cancel: threading.Event | None, timeout_s: float | None) -> ProcessOutcome:
        answer = bytearray()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        assert self._process.stdout is not None and self._process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ, "stdout")
            selector.register(self._process.stderr, selectors.EVENT_READ, "stderr")
            selector.register(self._control, selectors.EVENT_READ, "control")
            while selector.get_map():
                for key, _ in selector.select(0.1):
                    try:
                        data = os.read(key.fd, 65536)
                    except ConnectionResetError:  # the supervisor ended before it read its job
                        data = b""
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.data == "control":
                        answer += data
                    else:
                        self._take(key.data, data)
                self._poll()
                if cancel is not None and cancel.is_set():
                    self.kill()
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError
        self._process.wait()
        *_, line = bytes(answer).splitlines() or [b""]  # a late KEPT may stand before it
        outcome = from_json(line, ProcessOutcome) if line + b"\n" not in (b"\n", KEPT) else \
            ProcessOutcome(ended="killed", returncode=None)  # the supervisor was killed
        outcome = self._outcome = replace(outcome, stdout=bytes(self._outputs["stdout"]),
                                          stderr=bytes(self._outputs["stderr"]))
        self.close()
        raw_outputs.keep_process(self._name, self._argv, outcome, self.limits)
        return outcome

    def _poll(self) -> None:
        """From time to time, apply the limit and report what a yielding job waits for."""
        if time.monotonic() < self._next_poll:
            return
        self._next_poll = time.monotonic() + POLL_S
        self.apply_wall_limit()
        if self._waits is not None:
            self._waits.poll()

    def _take(self, name: str, data: bytes) -> None:
        self._outputs[name] += data
        if name == "stdout" and self._on_line is not None:
            first, *others = data.split(b"\n")
            self._line += first
            for rest in others:
                self._on_line(bytes(self._line))
                self._line = bytearray(rest)

    def close(self) -> None:
        """Release the process; if it still runs, its supervisor kills it."""
        self._control.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()

    def __enter__(self) -> Guarded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None,
        limits: Limits | None = None, confine: Confine | None = None,
        lock: DeviceLock | None = None, yields: Turnstile | None = None,
        pass_fds: Sequence[int] = (), on_line: Callable[[bytes], None] | None = None,
        on_wait: Callable[[str], None] | None = None, cancel: threading.Event | None = None,
        zygote: Zygote | None = None, program: str = "", words: Sequence[str] = (),
        name: str = "", wall_s: Callable[[], float] | None = None) -> ProcessOutcome:
    """Run an untrusted command and return how it ended; a failing command raises nothing.

    `on_wait` is called with what a yielding command waits for, and with "" when it continues.
    """
    with Guarded(argv, cwd=cwd, env=clean_env() if env is None else env, limits=limits,
                 confine=confine, lock=lock, yields=yields, pass_fds=pass_fds,
                 on_line=on_line, on_wait=on_wait, zygote=zygote, program=program, words=words,
                 name=name, wall_s=wall_s) as guarded:
        return guarded.wait(cancel=cancel)

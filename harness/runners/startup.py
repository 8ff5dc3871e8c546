"""Start runner processes, and check that they can run kernels before they load one."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from harness.compile import timed_loop
from harness.compile.kernel import Kernel
from harness.compile.place import Place
from harness.errors import DeviceFault, EnvironmentFault
from harness.isolation import guard
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.send_times import SendTimes
from harness.runners import context_queue
from harness.runners.process_home import ProcessHome
from harness.runners.shared_process import SharedRunner

MACHINE_ERRORS = ("not compiled with", "driver on your system", "no NVIDIA driver")
"""Parts of torch's error messages that concern torch or the driver, not a single card."""


class GpuUnreachable(Exception):
    """A runner that has loaded no kernel yet cannot reach the GPU."""


class RunnerStarter:
    """Starts runner processes, each new and under a guard of its own.

    `confined` is whether they run in namespaces. With `one_queue` a runner has one queue to its
    card, for kernels that use a single stream. Runners of a `shared` process have no names.
    """

    def __init__(self, limits: Limits, *, shared: bool = False) -> None:
        self._limits, self._shared = limits, shared
        self.confined = True
        self.one_queue = False
        self._asleep: set[Peer] = set()
        self._started: dict[Peer, float] = {}
        self._homes: dict[Peer, ProcessHome] = {}
        self._home_lock = threading.Lock()
        self._timed: set[str] = set()

    def start(self, kernel: Kernel, lock: DeviceLock | None, *, asleep: bool = False) -> Peer:
        """Start a runner, without loading its kernel; if `asleep`, call `wake` before `load`.

        Without a lock it yields to the measurements of other processes, as its place says.
        """
        place, bare = kernel.place, kernel.target.language == "c"
        home = ProcessHome(kernel, confined=self.confined and not guard.confinement_problem(),
                           frozen=self._timed, lock=self._home_lock)
        env = home.environment({**(context_queue.ONE_QUEUE if self.one_queue else {}), **place.env})
        if place.interpret:
            env["TRITON_INTERPRET"] = "1"
        else:  # registers and spills go to the verdict's outputs
            env["TRITON_DUMP_PTXAS_LOG"] = "1"
        peer = Peer("run.runner", cwd=home.path, limits=self._limits, env=env, lock=lock,
                    yields=place.yields if lock is None else None, bare=bare,
                    python=None if bare else place.python, zygote=place.zygote, cancel=place.cancel,
                    name="" if self._shared else kernel.name,
                    confine=home.confine() if self.confined else None,
                    on_ending=home.store_compiled, on_ended=home.remove)
        self._homes[peer] = home
        self._started[peer] = time.monotonic()
        self._asleep.add(peer)
        if not asleep:
            self.wake(peer, kernel)
        return peer

    def wake(self, peer: Peer, kernel: Kernel) -> None:
        """Tell a runner to import what it needs and find the card, unless it was woken before."""
        if peer in self._asleep:
            self._asleep.discard(peer)
            if kernel.target.language != "c":
                peer.send("ready", language=kernel.target.language, device=kernel.place.device,
                          interpret=kernel.place.interpret)

    def load(self, peer: Peer, kernel: Kernel) -> None:
        """Tell a ready runner to load a kernel, and give it the compiled code kept for the kernel.

        A process of one kernel also gets a new key, with which it seals the times that it reports.
        """
        self.home_of(peer).seed(kernel)
        if kernel.place.interpret:  # nothing is timed
            peer.send("load", loop="", **kernel.job())
            return
        loop = str(timed_loop.library(kernel.target, Path(kernel.place.scratch)))
        if isinstance(peer, SharedRunner):
            peer.send("load", loop=loop, **kernel.job())
            return
        peer.key = secrets.token_bytes(16)
        reading, writing = os.pipe()
        os.write(writing, peer.key)
        os.close(writing)
        descriptors = [reading]
        peer.stamps = SendTimes.open()
        if peer.stamps is not None:
            descriptors.append(peer.stamps.theirs.fileno())
        try:
            peer.send("load", descriptors, loop=loop, **kernel.job())
        finally:
            os.close(reading)

    def home_of(self, peer: Peer) -> ProcessHome:
        return self._homes[peer.process if isinstance(peer, SharedRunner) else peer]

    def keep_compiled(self, peers: Iterable[Peer]) -> None:
        """When these runners end, keep what they compiled for later runners of the same kernel."""
        for peer in peers:
            self.home_of(peer).keeps_compiled = True

    def freeze(self, kernels: Iterable[Kernel]) -> None:
        """Keep no more compiled code of these kernels, because they are timed from now on."""
        self._timed.update(kernel.identity for kernel in kernels)

    def age_s(self, peer: Peer) -> float:
        return time.monotonic() - self._started[peer]

    def forget(self, peer: Peer) -> None:
        """Let a later `wake` send nothing to a runner that is being ended."""
        self._asleep.discard(peer)

    def clear(self) -> None:
        self._asleep.clear()
        self._started.clear()
        for home in self._homes.values():
            home.remove()
        self._homes.clear()


def unreachable_fault(why: str, place: Place) -> EnvironmentFault:
    """Return a DeviceFault, or an EnvironmentFault if `why` concerns torch or the driver."""
    message = f"torch reaches no GPU: {why}"
    if any(words in why for words in MACHINE_ERRORS):
        return EnvironmentFault(message, where=place.python or "this Python")
    return DeviceFault(message, where=place.device, fix="check it with nvidia-smi, or use another")


def await_ready(peer: Peer, kernel: Kernel) -> None:
    """Wait until a runner that was woken has imported its modules.

    Raises GpuUnreachable, or EnvironmentFault if the target's Python cannot run such kernels.
    """
    if kernel.target.language == "c":
        return
    try:
        if no_gpu := peer.receive().get("no_gpu"):
            raise GpuUnreachable(no_gpu)
    except (PeerError, PeerDied) as error:
        raise EnvironmentFault(
            f"the target's Python cannot run {kernel.target.language} kernels: {error.what}",
            where=kernel.place.python or "this Python",
            fix="install torch and triton there, or set python: in the manifest") from None


def has_failed(warmup: Future[None]) -> bool:
    """Wait until a runner has created its context; return whether that failed.

    No kernel is the cause, since none is loaded yet; another process on the card may be.
    """
    try:
        warmup.result()
    except (PeerError, PeerDied):
        return True
    return False


def load_woken(starter: RunnerStarter, kernel: Kernel, peer: Peer) -> None:
    """Load a kernel in a runner that was woken, and keep what it compiles.

    Raises PeerError, PeerDied, EnvironmentFault.
    """
    try:
        await_ready(peer, kernel)
    except GpuUnreachable as error:
        raise PeerError(f"no GPU: {error}") from None
    starter.keep_compiled([peer])
    starter.load(peer, kernel)
    peer.receive()

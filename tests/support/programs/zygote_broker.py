"""One zygote of a kind for all workers of a test run: importing torch or LiteLLM takes seconds.

The process that starts the workers starts the zygotes too, and hands them out over a socket.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass, replace

from harness.formats.json_codec import from_json, to_json
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import INHERITED
from harness.isolation.zygote_client import Zygote, ZygoteKind

VARIABLE = "KOPT_TEST_ZYGOTES"
"""The variable with the name of the broker's abstract socket, without its first byte, 0."""
PASSIVE = ("OMP_WAIT_POLICY", "passive")
"""torch's threads sleep while they wait: spinning took most of the cores' time from tests."""

OF_CARDS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that a program reads when it first uses a card; no import does."""

_usual = {name: os.environ.get(name) for name in INHERITED}
inherited = Zygote.inherited
"""Returns the zygote that was passed to this process, without the broker."""


def inherited_or_of_run(kind: ZygoteKind) -> Zygote | None:
    """Return the zygote that was passed to this process, or the run's.

    None if there is no broker, or if a test has set variables of the kind: it starts its own.
    """
    if (passed := inherited(kind)) is not None:
        return passed
    usual = all(name in OF_CARDS or value == _usual.get(name, value) for name, value in kind.env)
    return start(kind) if usual and VARIABLE in os.environ else None


@dataclass(frozen=True)
class Wanted:
    """What a worker asks for."""

    kind: ZygoteKind
    yields: Turnstile | None


def serve() -> None:
    """Hand out zygotes until this process ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.environ[VARIABLE] = name = f"kopt-tests-{os.getpid()}"
    listener.bind(f"\0{name}")
    listener.listen(64)
    threading.Thread(target=_answer, args=(listener,), daemon=True).start()


def start(kind: ZygoteKind, yields: Turnstile | None = None) -> Zygote:
    """Return the run's zygote of a kind, one of this process if no broker serves it."""
    if VARIABLE not in os.environ:
        return Zygote.start(kind, yields=yields)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(f"\0{os.environ[VARIABLE]}")
        channel.sendall(to_json(Wanted(kind, yields)))
        _, descriptors, _, _ = socket.recv_fds(channel, 16, 1)
    return Zygote(kind, socket.socket(fileno=descriptors[0]))


def _answer(listener: socket.socket) -> None:
    zygotes: dict[str, Zygote] = {}
    while True:
        channel, _ = listener.accept()
        with channel:
            wanted = from_json(channel.recv(1 << 16), Wanted)
            env = (*(pair for pair in wanted.kind.env if pair[0] not in OF_CARDS), PASSIVE)
            kind = replace(wanted.kind, env=env)
            zygote = zygotes.get(kind.name)
            if zygote is None or not zygote.alive:
                zygote = zygotes[kind.name] = Zygote.start(kind, yields=wanted.yields)
            socket.send_fds(channel, [b"zygote"], [zygote.descriptor])

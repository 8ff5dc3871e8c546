"""One side of a comparison: a kernel from a tree, built if its language needs it, ready to run."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness import build_c
from harness.build_c import BuildError
from harness.errors import InputError
from harness.guard import Confine, Limits, clean_env
from harness.lock import DeviceLock, Turnstile
from harness.peer import Peer
from harness.target import Target


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where kernels run: the device, the interpreter, the folder they may write to."""

    device: str
    scratch: str
    python: str | None = None
    env: Mapping[str, str] = {}
    interpret: bool = False


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that a runner can load. `identity` is equal when the running code is."""

    target: Target
    artifact: str
    identity: str
    place: Place

    def start(self, limits: Limits, *, lock: DeviceLock | None = None,
              yields: Turnstile | None = None, cancel: threading.Event | None = None) -> Peer:
        """Start a runner and load the kernel into it. Raises PeerError or PeerDied."""
        bare = self.target.language == "c"
        home = Path(self.place.scratch)
        env = clean_env(self.place.env, home=home)
        if self.place.interpret:
            env["TRITON_INTERPRET"] = "1"
        peer = Peer("runner.py", cwd=home, limits=limits, env=env, lock=lock, yields=yields,
                    bare=bare, python=None if bare else self.place.python, cancel=cancel,
                    confine=Confine(writable=(str(home),)))
        try:
            peer.ask("load", **self._job())
        except BaseException:
            peer.close()
            raise
        return peer

    def _job(self) -> dict[str, Any]:
        return {"language": self.target.language, "artifact": self.artifact,
                "sha256": self.identity, "entry": self.target.entry,
                "returns": self.target.returns, "device": self.place.device,
                "interpret": self.place.interpret}


def make(target: Target, tree: Path, name: str, place: Place, *,
         yields: Turnstile | None = None, cancel: threading.Event | None = None) -> Kernel:
    """Turn the target's source in `tree` into something that runs. Raises BuildError."""
    source = tree / target.source
    try:
        text = source.read_bytes()
    except OSError as error:
        raise BuildError(f"{target.source}: {error.strerror}") from None
    if target.language == "c":
        out = Path(place.scratch) / "build" / name / "kernel.so"
        built = build_c.build(target, tree, out, yields=yields, cancel=cancel)
        return Kernel(target=target, artifact=built.path, identity=built.sha256, place=place)
    try:
        compile(text, target.source, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise BuildError(f"{target.source}:{line}: {error}") from None
    return Kernel(target=target, artifact=str(source),
                  identity=hashlib.sha256(text).hexdigest(), place=place)


def scratch_inside(folder: Path, name: str) -> Path:
    """Return a folder below `folder`, made; raises InputError where that cannot be written."""
    path = folder / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write here: {error.strerror}", where=str(path)) from None
    return path

"""Zygotes and runners of a kernel, for tests that fork them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.compile.place import Place, kind_of
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import (
    Zygote,
    ZygoteKind,
)

PLACE = Place(device="cpu", scratch="")


LIMITS = Limits(wall_s=60.0)


def kind(language: str = "python") -> ZygoteKind:
    return kind_of(PLACE, language)


def runner(zygote: Zygote | None, home: Path, **fields: Any) -> Peer:
    home.mkdir(exist_ok=True)
    return Peer("run.runner", cwd=home, limits=fields.pop("limits", LIMITS), zygote=zygote,
                env=clean_env(fields.pop("env", {}), home=home), **fields)


def ready(peer: Peer) -> dict[str, Any]:
    return peer.ask("ready", language="python", device="cpu", interpret=False)

"""Zygotes that serve a whole process, one for each purpose, and end with it."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from harness.isolation.device_lock import Turnstile
from harness.isolation.zygote_client import WarmStart, Zygote, ZygoteKind

SUPERVISORS = ZygoteKind(python=sys.executable, language="", env=(),
                         modules=("kopt_child.supervise.confine",))
_lock = threading.Lock()
_kept: dict[tuple[str, ...], tuple[ZygoteKind, WarmStart]] = {}
"""This process's zygotes by language and imported modules."""
_inherited: list[WarmStart] = []
"""Zygotes of processes that forked this one; kept, since they are not this process's to end."""


def zygote(kind: ZygoteKind, *, yields: Turnstile | None = None) -> Zygote | None:
    """Return this process's zygote of a kind: a zygote passed to this process, else a new one.

    None while this process exits.
    A zygote with the same imports but another environment is closed first. With `yields`, a new
    zygote's imports wait while other processes measure on the CPU.
    """
    purpose = (kind.language, *kind.modules)
    with _lock:
        kept, warm = _kept.get(purpose, (None, None))
        if warm is None or kept != kind:
            if warm is not None:
                warm.close()
            warm = WarmStart(kind, yields=yields)
            _kept[purpose] = kind, warm
    return warm.zygote()


def _close() -> None:
    with _lock:
        for _, warm in _kept.values():
            warm.close()


def _forget() -> None:
    """Make a fork of this process start its own zygotes, and release those of its parent."""
    global _lock
    _lock = threading.Lock()
    for _, warm in _kept.values():
        warm.let_go()
        _inherited.append(warm)
    _kept.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close)

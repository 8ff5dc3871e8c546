"""Fixtures for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.isolation import shared_zygotes
from harness.isolation.zygote_client import WarmStart, Zygote, ZygoteKind
from tests.support.programs import zygote_broker
from tests.support.programs.zygote_case import kind


@pytest.fixture(autouse=True, scope="module")
def own_zygotes() -> Iterator[None]:
    """Start new zygotes for each test file, since its tests kill and count them."""
    kept: dict[tuple[str, ...], tuple[ZygoteKind, WarmStart]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Zygote, "inherited", zygote_broker.inherited)
        patch.setattr(shared_zygotes, "_kept", kept)
        yield
    for _, warm in kept.values():
        warm.close()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    started = Zygote.start(kind())
    yield started
    started.close()

"""What the tests of workers share."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

from engine.workers.model import model_process
from harness.isolation import device_lock
from harness.isolation.zygote_client import Zygote
from tests.support import zygote_broker


@pytest.fixture(autouse=True, scope="session")
def one_client_for_all_workers() -> None:
    """Have one process of a test run import the client of a model: that takes ten seconds."""
    @functools.cache
    def zygote() -> Zygote:
        return zygote_broker.start(model_process.client_kind(), device_lock.turnstile())

    model_process._warm_client = lambda: SimpleNamespace(zygote=zygote)  # type: ignore

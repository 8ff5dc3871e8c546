"""An engine that ends at once says why, or names its log and the free space."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run import host
from harness.errors import EnvironmentFault
from tests.support.engines import campaigns


def test_engine_that_ends_without_a_word_names_its_log_and_the_free_space(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = campaigns.campaigns.create(tmp_path / "w", campaigns.project(tmp_path / "p"))
    monkeypatch.setattr(host.sys, "executable", "/bin/false")  # as on a disk without a free byte
    with pytest.raises(EnvironmentFault, match=r"wrote nothing to .*host\.log \(\d+ KiB are free"):
        host.spawn(setup.workspace, setup.id)

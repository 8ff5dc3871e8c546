"""An engine that ends at once says why, or names its log and the free space."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run import host
from harness.errors import EnvironmentFault
from tests.support.engines import campaigns


@pytest.mark.parametrize(("least_free_kib", "advice"), [
    (0, "kopt resume "), (1 << 60, "free some space or choose another --workspace")],
    ids=["enough space", "a full disk"])
def test_engine_that_ends_without_a_word_names_its_log_and_the_free_space(
        least_free_kib: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = campaigns.campaigns.create(tmp_path / "w", campaigns.project(tmp_path / "p"))
    monkeypatch.setattr(host.sys, "executable", "/bin/false")  # as on a disk without a free byte
    monkeypatch.setattr(host, "LEAST_FREE_KIB", least_free_kib)
    with pytest.raises(EnvironmentFault, match=r"nothing to .*host\.log, where \d+ KiB ") as end:
        host.spawn(setup.workspace, setup.id)
    assert end.value.fix.startswith(advice)

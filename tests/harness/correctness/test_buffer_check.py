"""A candidate's module must change its buffers as the baseline's does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exploits import case
from tests.exploits.families.family_x_unseen_values import FOLLOWING, UPDATE, model

INNER = model(1, UPDATE.replace("self.", "self.inner.")).replace(
    'self.register_buffer("covariance", torch.zeros(64, 64))',
    "self.inner = torch.nn.Module()\n"
    '        self.inner.register_buffer("covariance", torch.zeros(64, 64))')
HALF = model(1, UPDATE.replace("0.01", "0.005"))


@pytest.mark.parametrize(("source", "words"), [
    (HALF, "class small: its calls leave other values in covariance than the baseline's"),
    (INNER, "")],
    ids=["by half", "in an inner module"])
def test_buffer_kept_by_an_adapter_must_change_as_the_baselines_does(
        source: str, words: str, tmp_path: Path) -> None:
    verdict = case.judge(tmp_path, FOLLOWING, source)
    assert verdict.valid is (not words), verdict
    assert (verdict.rejected_reason or "") == words

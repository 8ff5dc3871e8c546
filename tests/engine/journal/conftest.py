"""A journal with one campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.journal.write import Writer
from tests.support.dashboards import samples


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    made = Writer(tmp_path)
    made.add_campaign(samples.campaign())
    return made

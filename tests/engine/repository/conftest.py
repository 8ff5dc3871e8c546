"""Fixtures: a user's project and the clone of a campaign on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.repository.campaign_repo import CampaignRepo
from tests.support import repos


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return repos.project(tmp_path / "user")


@pytest.fixture
def repo(tmp_path: Path, user: Path) -> CampaignRepo:
    return CampaignRepo.create(tmp_path / "campaign", "rms", user)

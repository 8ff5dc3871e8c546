"""An engine renders its files for people by the templates with which it started."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.records import templates


def test_running_engine_keeps_its_templates_if_kopt_is_upgraded(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    templates.environment(str)
    monkeypatch.setattr(templates, "FOLDER", tmp_path)
    page = templates.environment(lambda text: text).get_template("performance.md.jinja")
    assert page.name == "performance.md.jinja"

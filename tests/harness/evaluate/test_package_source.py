"""A source that belongs to a package is imported as the package's module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.child.run import import_tree


@pytest.mark.parametrize(("package", "name"), [(True, "ops.norms.rms"), (False, "norms.rms")])
def test_relative_imports_resolve_in_the_package(
        package: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ops" / "norms"
    folder.mkdir(parents=True)
    (folder / "rms.py").write_text("from .sizes import BLOCK\n")
    (folder / "sizes.py").write_text("BLOCK = 64\n")
    if package:
        (folder / "__init__.py").touch()
        (tmp_path / "ops" / "__init__.py").touch()
    assert import_tree.package_of(str(folder / "rms.py"), str(tmp_path)) == (
        str(tmp_path if package else tmp_path / "ops"), name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(import_tree, "_current_root", [""])
    monkeypatch.setattr(import_tree, "_parked", {})
    assert import_tree.import_file(str(folder / "rms.py"), str(tmp_path)).BLOCK == 64


def test_file_with_absolute_imports_belongs_to_no_package(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n")
    assert import_tree.package_of(str(tmp_path / "a.py"), str(tmp_path)) is None


def test_package_below_a_source_folder_is_importable(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "src" / "fast_ops" / "norms"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        (each / "__init__.py").touch()
    (folder / "rms.py").write_text("from fast_ops.norms.sizes import BLOCK\n")
    (folder / "sizes.py").write_text("BLOCK = 64\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(import_tree, "_current_root", [""])
    monkeypatch.setattr(import_tree, "_parked", {})
    assert import_tree.import_file(str(folder / "rms.py"), str(tmp_path)).BLOCK == 64

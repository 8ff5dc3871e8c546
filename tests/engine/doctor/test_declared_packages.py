"""Tests that a missing or broken package is found by `kopt doctor` and named by the other verbs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.doctor import declared_packages
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, error_text, kopt, write_campaign

BLOCKER = """
import sys


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if (module := name.partition(".")[0]) in MODULES:
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)


sys.meta_path.insert(0, Blocker())
"""


def without(*modules: str, at: Path) -> str:
    """Return a PYTHONPATH under which modules are not installed, for all child processes too."""
    (at / "sitecustomize.py").write_text(BLOCKER.replace("MODULES", repr(modules)))
    return os.pathsep.join((str(at), str(ROOT)))


def broken(module: str, folder: Path) -> str:
    """Return a PYTHONPATH under which a module is installed but fails to import."""
    (folder / f"{module}.py").write_text("raise ImportError('libgfortran.so.5: cannot open')\n")
    return os.pathsep.join((str(folder), str(ROOT)))


REQUIRED = [package.module for package in declared_packages.declared()
            if package.module != "msgspec"]  # doctor itself needs msgspec


def test_doctor_finds_every_missing_dependency(tmp_path: Path) -> None:
    done = kopt("doctor", "--json", workspace=tmp_path, PYTHONPATH=without(*REQUIRED, at=tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    missing = {check["name"]: check for check in json.loads(done.stdout)["checks"]
               if check["status"] == "missing"}
    for package in declared_packages.declared():
        if package.module in REQUIRED:
            check = missing.pop(package.name)
            assert check["found"] == "is not installed"
            assert f"pip install '{package.name}{package.specifier}'" in check["fix"]
    assert missing == {}


def test_doctor_finds_a_dependency_that_is_installed_but_broken(tmp_path: Path) -> None:
    done = kopt("doctor", workspace=tmp_path, PYTHONPATH=broken("yaml", tmp_path))
    assert done.returncode == 3
    assert "✗ pyyaml" in done.stdout
    assert "cannot be imported: ImportError: libgfortran.so.5" in done.stdout
    assert done.stdout.endswith("missing requirements: pyyaml\n")


def test_missing_dashboard_package_is_only_a_note(tmp_path: Path) -> None:
    done = kopt("doctor", "--json", workspace=tmp_path, PYTHONPATH=without("textual", at=tmp_path))
    check = {check["name"]: check for check in answer(done)["checks"]}["dashboard"]
    assert check["status"] == "note" and "textual is not installed" in check["found"]


@pytest.mark.parametrize(("words", "module"), [
    (("gpus",), "yaml"), (("propose", "MANIFEST"), "yaml"),
    (("status",), "msgspec"), (("doctor",), "msgspec"), (("report", "--json"), "msgspec"),
])
def test_verb_names_the_missing_package_in_one_line(
        words: tuple[str, ...], module: str, tmp_path: Path) -> None:
    manifest = str(ROOT / "examples/matmul_c/manifest.yaml")
    write_campaign(tmp_path / "workspace")
    done = kopt(*(word.replace("MANIFEST", manifest) for word in words),
                workspace=tmp_path / "workspace", PYTHONPATH=without(module, at=tmp_path))
    if done.returncode == 0:  # a verb that does not need the package works without it
        assert (words, module) == (("gpus",), "yaml")
        return
    package = next(
        package for package in declared_packages.declared() if package.module == module
    ).name
    assert done.returncode == 3
    assert error_text(done).startswith(f"the package {package} is not installed (")
    assert "pip install" in error_text(done)
    if "--json" in words:
        assert json.loads(done.stdout)["error"]["exit_code"] == 3


def test_verb_names_the_broken_package(tmp_path: Path) -> None:
    done = kopt("propose", str(ROOT / "examples/matmul_c/manifest.yaml"), workspace=tmp_path,
                PYTHONPATH=broken("yaml", tmp_path))
    assert done.returncode == 3
    assert error_text(done).startswith("the package pyyaml cannot be imported: libgfortran.so.5")


def test_import_that_ends_the_process_does_not_hide_the_next_package(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashes.py").write_text("import os; os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    packages = [declared_packages.DeclaredPackage(name, "", name)
                for name in ("json", "crashes", "absent")]
    assert declared_packages.import_errors(packages) == {
        "crashes": "its import ends the process (exit code 7)", "absent": "is not installed"}


def test_fault_of_kopt_itself_is_not_blamed_on_a_package() -> None:
    with pytest.raises(ImportError) as caught:
        import kopt_tui.no_such_module  # noqa: F401
    assert declared_packages.culprit(caught.value) is None

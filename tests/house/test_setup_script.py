"""The set-up script prints nothing if nothing is to be done, and reports a problem in one line."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

COMMANDS = ("bash", "cat", "cksum", "dirname", "grep", "tail")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder that looks like a clone, next to a PATH that has only basic commands."""
    folder = tmp_path / "clone"
    (folder / ".ci").mkdir(parents=True)
    for name in (".ci/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    (tmp_path / "bin").mkdir()
    for name in COMMANDS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    return folder


def give(clone: Path, name: str, script: str = "exit 0") -> None:
    """Put a command on the clone's PATH."""
    tool = clone.parent / "bin" / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def setup(clone: Path, profile: str = "demo", **env: str) -> tuple[int, str, str]:
    done = subprocess.run([clone / ".ci" / "setup", profile], cwd=clone.parent, check=False,
                          capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env={"PATH": str(clone.parent / "bin"), **env})
    return done.returncode, done.stdout, done.stderr


def test_missing_tool_is_reported_in_one_line(clone: Path) -> None:
    assert setup(clone) == (3, "", "kopt: git is not installed: install git and run make again\n")
    give(clone, "git")
    code, _, errors = setup(clone)
    assert code == 3 and errors.startswith("kopt: no C compiler") and errors.count("\n") == 1
    give(clone, "gcc")
    for name in ("python3", "python3.11"):
        give(clone, name, "exit 1")
    code, _, errors = setup(clone)
    assert code == 3 and errors.startswith("kopt: Python 3.11 or newer is needed")
    give(clone, "python3.11", 'case "$2" in *ensurepip*) exit 1;; esac')
    code, _, errors = setup(clone)
    assert code == 3 and errors.startswith("kopt: python3.11 has no venv module")
    assert setup(clone, "other")[0] == 3


def fake_python(clone: Path, install: str) -> None:
    """Put a python3 on the PATH; in its virtual environments, pip runs the script `install`."""
    give(clone, "git")
    give(clone, "gcc")
    for name in ("mkdir", "chmod", "touch"):
        (clone.parent / "bin" / name).symlink_to(shutil.which(name) or name)
    inner = f'case "$*" in -V) echo Python 3.11.9;; *pip*install*) {install};; esac'
    give(clone, "python3", f"""
        [ "$2" = venv ] || exit 0
        mkdir -p .venv/bin
        echo '#!/bin/sh' > .venv/bin/python
        cat >> .venv/bin/python <<'EOF'
{inner}
EOF
        chmod +x .venv/bin/python""")


def test_failing_pip_is_reported_in_one_line(clone: Path) -> None:
    fake_python(clone, "echo ERROR: No matching distribution >&2; exit 1")
    code, output, errors = setup(clone)
    assert code == 3
    assert output.startswith("kopt: setting up .venv with Python 3.11.9 and kopt[tui]")
    assert errors.startswith("kopt: pip could not install kopt[tui]: ERROR: No matching")
    assert errors.count("\n") == 1


def test_setup_is_silent_until_requirements_change(clone: Path) -> None:
    fake_python(clone, "echo ran >> ran")
    assert setup(clone)[0] == 0
    assert setup(clone) == (0, "", "")
    assert (clone / "ran").read_text() == "ran\n"
    with (clone / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    assert "setting up" in setup(clone)[1]


def test_setup_for_tests_installs_every_extra(clone: Path) -> None:
    fake_python(clone, "exit 0")
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    extras = ",".join(project["optional-dependencies"])
    assert f"kopt[{extras}]" in setup(clone, "test")[1]

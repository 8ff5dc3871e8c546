"""Bad input and broken machines give one clear line, the right exit code and a recorded state."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import create
from engine.journal.read import Reader
from engine.run import host
from tests.support import repos
from tests.support.engines import campaigns, instant_verdicts

WIDE = "".join(f"{n}, " for n in range(300))


def run_refused(words: list[str], workspace: Path, **env: str) -> tuple[int, str]:
    """Run kopt; return its exit code and its one line on stderr."""
    code, _, err = campaigns.command(*words, workspace=workspace, **env)
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 1, err
    return code, err.strip()


def without_compiler(folder: Path) -> str:
    """Return a PATH with git and what it needs, but without a compiler."""
    folder.mkdir()
    for name in ("git", "sh", "rm", "chmod"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def assert_nothing_begun(workspace: Path) -> None:
    reader = Reader(workspace)
    assert reader.campaigns() == []
    reader.close()
    assert not [path for path in workspace.glob("*") if path.is_dir()]


def append(name: str, text: str) -> Callable[[Path], None]:
    def act(project: Path) -> None:
        with (project / name).open("a") as file:
            file.write(text)
    return act


def drop(name: str) -> Callable[[Path], None]:
    def act(project: Path) -> None:
        shutil.rmtree(project / name) if (project / name).is_dir() else (project / name).unlink()
    return act


def ignore(name: str) -> Callable[[Path], None]:
    def act(project: Path) -> None:
        repos.git(project, "rm", "-q", "--cached", name)
        repos.commit(project, {".gitignore": f"{name}\n"}, "gone")
    return act


@pytest.mark.parametrize(("breaking", "code", "words"), [
    (append("manifest.yaml", "aproval: auto\n"), 2, "unknown key 'aproval'"),
    (append("manifest.yaml", "max_iterations: often\n"), 2, "max_iterations"),
    (append("manifest.yaml", "\t- [\n"), 2, "manifest.yaml:"),
    (drop("manifest.yaml"), 2, "manifest.yaml"),
    (drop("task.yaml"), 2, "no task file"),
    (append("task.yaml", "tolerancy: 1\n"), 2, "tolerancy"),
    (ignore("scale.c"), 2, "scale.c is ignored by git"),
    (ignore("reference.py"), 2, "reference.py is ignored by git"),
    (append("manifest.yaml", "python: 3\n"), 2, "python"),
])
def test_bad_input_gives_one_line_and_an_exit_code(
        tmp_path: Path, breaking: Callable[[Path], None], code: int, words: str) -> None:
    manifest = campaigns.project(tmp_path / "p")
    breaking(manifest.parent)
    got, line = run_refused(["run", str(manifest)], tmp_path / "w")
    assert (got, words in line) == (code, True), line
    assert_nothing_begun(tmp_path / "w")


def test_missing_compiler_is_refused(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p")
    code, line = run_refused(["run", str(manifest)], tmp_path / "w",
                             PATH=without_compiler(tmp_path / "bin"))
    assert code == 3 and "no C compiler found" in line
    assert_nothing_begun(tmp_path / "w")


def test_compiler_lost_during_campaign_fails_it(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    code, line = run_refused(["run", "--here", setup.id], setup.workspace,
                             PATH=without_compiler(tmp_path / "bin"))
    assert code == 3 and "no C compiler found" in line
    campaign = campaigns.campaign(setup)
    assert campaign.state == "failed" and "no C compiler" in campaign.reason
    assert "no C compiler" in setup.folder.performance.read_text()
    with campaigns.reading(setup) as reader:
        assert reader.lease(setup.id) is None


def test_unwritable_workspace_is_refused(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p")
    (tmp_path / "file").write_text("")
    code, line = run_refused(["run", str(manifest)], tmp_path / "file" / "w")
    assert code == 3 and line.startswith("kopt: ")


@pytest.mark.parametrize(("given", "code", "words"), [
    ({"kernel": "void scale( {\n"}, 2, "the baseline does not pass its own check: does not comp"),
    ({"kernel": campaigns.KERNEL.replace("2.0f", "3.0f")}, 2,
     "class small: out: error 0.5 of the output's scale"),
    pytest.param({"kernel": campaigns.KERNEL.replace("x[i] * 2.0f", "*(volatile float *)0")}, 2,
                 "SIGSEGV", marks=pytest.mark.slow),
    ({"reference": "def scale(x):\n    raise ValueError('no \\x1b[31mway')\n"}, 2, "no way"),
    pytest.param({"reference": "def other(x):\n    return x\n"}, 2, "reference",
                 marks=pytest.mark.slow),
    pytest.param({"reference": "import nowhere_to_be_found\n"}, 2, "nowhere_to_be_found",
                 marks=pytest.mark.slow),
    ({"task": {"classes": [{"name": "small", "shape": {"m": 3}}]}}, 2, ""),
    pytest.param({"task": {"args": [
        {"name": "x", "dtype": "float32", "shape": ["n"]},
        {"name": "out", "dtype": "float32", "shape": ["n", 2], "role": "output"},
        {"name": "n", "dtype": "int64", "value": "n"}]}}, 2, "shape", marks=pytest.mark.slow),
])
def test_bad_baseline_fails_campaign(tmp_path: Path, given: dict[str, Any], code: int,
                                     words: str) -> None:
    manifest = campaigns.project(tmp_path / "p", **given)
    got, line = run_refused(["run", "--here", str(manifest)], tmp_path / "w")
    assert (got, words in line) == (code, True), line
    assert line.isprintable()
    reader = Reader(tmp_path / "w")
    for campaign in reader.campaigns():
        assert campaign.state == "failed" and words in campaign.reason
        assert reader.lease(campaign.id) is None
    reader.close()
    assert campaigns.processes(tmp_path / "w") == []


@pytest.mark.parametrize("knob", [
    "#define PASSES 16  /* kopt: knob PASSES in [] */",
    pytest.param(f"#define PASSES 16  /* kopt: knob PASSES in [{WIDE}] */",
                 marks=pytest.mark.slow, id="wide"),
    "#define PASSES 16",
])
def test_invalid_knobs_are_warnings(tmp_path: Path, knob: str,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    kernel = "\n".join(knob if "define PASSES" in line else line
                       for line in campaigns.KERNEL.splitlines() if "FORWARD" not in line)
    setup = campaigns.create(tmp_path, kernel=kernel + "\n", pool={"backends": ["search"]})
    assert campaigns.run(setup).error is None
    campaign = campaigns.campaign(setup)
    assert campaign.state == "finished" and "nothing left to try" in campaign.reason
    expected = "cannot be read" if "kopt:" in knob else "scale.c declares no knobs"
    assert expected in campaign.reason and "pool.cli" in campaign.reason
    with campaigns.reading(setup) as reader:
        warned = [e for e in reader.events(campaign=setup.id) if e.kind == "warning"]
    assert len(warned) == ("kopt:" in knob)


@pytest.mark.slow
def test_full_disk_fails_campaign_and_resume_continues(tmp_path: Path) -> None:
    """The workspace is on a small file system that fills up during the campaign."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(small)],
                             capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        manifest = campaigns.project(tmp_path / "p", pool={"slots": 1, "backends": ["inbox"]})
        setup = create(small / "w", manifest)
        campaigns.hand_in(setup)
        pid = host.spawn(setup.workspace, setup.id)
        campaigns.until(lambda: campaigns.slots(setup))
        with contextlib.suppress(OSError), (small / "ballast").open("wb", buffering=0) as file:
            while file.write(b"x" * 65536):
                pass
        os.waitpid(pid, 0)
        log = (setup.folder.logs / "host.log").read_text()
        assert "Traceback" not in log
        assert log.startswith("kopt: ") and log.count("\n") == 1, log
        assert campaigns.processes(setup.workspace) == []
        (small / "ballast").unlink(missing_ok=True)  # the campaign itself may have filled the disk
        assert campaigns.run(setup).error is None
        assert campaigns.campaign(setup).state == "finished"
        campaigns.consistent(setup)  # with or without a keep: the full disk may end its round
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)

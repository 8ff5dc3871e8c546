"""`kopt manifest` names each program, script and shell fault of a command before it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.manifest import command_checks
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.manifest.schema import LimitSpec, Manifest, TargetSpec
from tests.support.engines import campaigns
from tests.support.programs.command_line import kopt


@pytest.mark.parametrize(("command", "problem"), [
    ("pytset -q", "there is no program 'pytset'"),
    ("A=1 true && pytset | cat", "there is no program 'pytset'"),
    ("python bench.py", "there is no bench.py in {project}"),
    ("./run.sh", "there is no ./run.sh in {project}"),
    ("for x in a; do echo", "shell syntax error: "),
    ("python here.py && cd build && ./made", ""), ("python -c 'import nothing.py'", ""),
    ("A=1 B='2 3' python here.py --out made.csv > log", ""), ("$PROGRAM x.py", ""),
    ("""true "$(printf %s 'it"s')\"""", ""),
    ("for f in *.py; do cat $f; done; [ -f here.py ]", ""), ("ulimit -s 1 && true", "")])
def test_each_problem_of_a_command_is_one_line(command: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "here.py").touch()
    problems = list(command_checks.problems(Manifest(
        target_op="x", project=str(tmp_path), test_command=command)))
    expected = f"test_command: {problem.format(project=tmp_path)}"
    assert [line[:len(expected)] for line in problems] == ([expected] if problem else [])


def test_workers_commands_are_checked_with_their_placeholders_filled(tmp_path: Path) -> None:
    pool = PoolSpec(backends=("cli",), cli=(
        CliSpec(name="a", command="{python} -m agent {prompt}"),
        CliSpec(name="b", command="no-such-agent {prompt}")))
    assert list(command_checks.problems(Manifest(
        target_op="x", project=str(tmp_path), pool=pool))) == [
            "pool.cli[1].command: there is no program 'no-such-agent'"]


def test_manifest_verb_prints_problems_or_time_limits(tmp_path: Path) -> None:
    good = campaigns.project(tmp_path / "p", test_command="true", limits={"test_s": 30})
    done = kopt("manifest", str(good))
    assert done.returncode == 0 and "time limits: tests 30 s, a worker 1800 s\n" in done.stdout
    bad = campaigns.project(tmp_path / "q", test_command="pytset")
    done = kopt("manifest", str(bad))
    assert done.returncode == 1
    assert done.stdout == f"{bad}: test_command: there is no program 'pytset'\n"


def test_manifest_verb_names_a_task_file_that_is_missing_or_wrong(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p")
    task = manifest.parent / "task.yaml"
    task.write_text(task.read_text() + "colour: red\n")
    done = kopt("manifest", str(manifest))
    assert done.returncode == 1 and f"{task}" in done.stdout and "'colour'" in done.stdout
    task.unlink()
    done = kopt("manifest", str(manifest))
    assert (done.returncode, done.stdout) == (
        1, f"{manifest}: target.task: there is no task.yaml in {tmp_path / 'p'}\n")


def test_file_to_edit_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "here.c").touch()
    manifest = Manifest(target_op="x", project=str(tmp_path), target=TargetSpec(kind="command"))
    for edit, problems in ((("her.c",), [f"edit: there is no her.c in {tmp_path}"]),
                           (("src/*.c",), [f"edit: there is no src/*.c in {tmp_path}"]),
                           (("her.c", "here.c"), []), (("*.c",), [])):
        named = msgspec.structs.replace(manifest, edit=edit)
        assert list(command_checks.problems(named)) == problems


def test_default_limits_are_900_s_for_tests_and_120_s_for_formatting() -> None:
    assert LimitSpec() == LimitSpec(test_s=900.0, format_s=120.0)


def test_network_that_each_worker_reaches_is_stated(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    manifest = Manifest(target_op="x", pool=PoolSpec(cli=(
        CliSpec(name="own", command="own {prompt}"),
        CliSpec(name="off", command="own {prompt}", network=False),
        CliSpec(name="on", command="own {prompt}", network=True),
        CliSpec(name="keyed", command="own {prompt}", env=("OPENAI_API_KEY",)),
        CliSpec(name="named", command="own {prompt}", network=("gate:81",)))))
    fix = "name its provider's key in `env`, or write `network: [HOST]` or `network: true`"
    assert list(command_checks.without_network(manifest)) == [
        f"the worker 'own' has no network; {fix}"]
    assert list(command_checks.networks(manifest)) == [
        f"own: no network; {fix}", "off: no network", "on: the whole network",
        "keyed: only api.openai.com:443", "named: only gate:81"]

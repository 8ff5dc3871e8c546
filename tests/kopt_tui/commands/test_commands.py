"""Tests the `kopt` command as a whole: verbs, one-line errors, exit codes, pipes and signals."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.journal.write import Writer
from kopt_tui.main import MODULES, VERBS
from tests.support.paths import ROOT
from tests.support.programs.command_line import (
    NAME,
    answer,
    error_text,
    harmless,
    kopt,
    write_campaign,
)


def test_help_lists_every_verb_and_each_has_a_module() -> None:
    help = kopt("--help").stdout
    for verb in VERBS:
        assert f"    {verb} " in help
        assert importlib.util.find_spec(f"kopt_tui.commands.{MODULES.get(verb, verb)}"), verb


def test_help_of_a_verb_states_its_purpose() -> None:
    done = kopt("events", "--help")
    assert done.returncode == 0
    assert VERBS["events"].partition(";")[0] in done.stdout and "--workspace" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stauts",), "unknown command 'stauts' (did you mean 'status'?)"),
        (("--workspace", "x", "frobnicate"), "unknown command 'frobnicate' (see kopt --help)"),
        (("approve",), "workspace: there is no campaign yet (kopt demo runs one; kopt new, then "
                       "kopt run, starts your own)"),
        (("submit",), "give either PATCH or --from SOURCE (see kopt submit --help)"),
        (("events", "--lines", "many"), "argument --lines/-n: invalid count value: 'many' (see "
                                        "kopt events --help)"),
        (("merge", "--squash"), "unrecognized arguments: --squash (see kopt merge --help)"),
        (("manifest",), "manifest.yaml: there is no such manifest (kopt new FILE:FUNCTION or "
                        "kopt new --project DIR writes one)"),
    ],
)
def test_wrong_usage_is_one_line_with_exit_code_2(words: tuple[str, ...], message: str) -> None:
    done = kopt(*words)
    assert (done.returncode, error_text(done), done.stdout) == (2, message, "")


def test_error_is_json_with_the_json_flag(tmp_path: Path) -> None:
    done = kopt("show", "nothing", "--json", workspace=tmp_path)
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 2 and error["what"] in error_text(done)


def test_dashboard_without_a_terminal_is_refused() -> None:
    done = kopt()
    assert done.returncode == 3
    assert "the dashboard needs a terminal" in error_text(done)


def test_file_that_is_not_a_journal_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "kopt.db").write_bytes(b"this is not a database" * 100)
    done = kopt("status", workspace=tmp_path)
    assert done.returncode == 3 and "kopt.db" in error_text(done)
    (tmp_path / "file").write_text("")
    done = kopt("status", workspace=tmp_path / "file" / "below")
    assert done.returncode == 0 or "below" in error_text(done)


@pytest.mark.parametrize("words", [
    ("status",), ("gpus",), pytest.param(("doctor",), marks=pytest.mark.slow), ("report",)])
def test_verbs_work_without_textual(words: tuple[str, ...], tmp_path: Path) -> None:
    write_campaign(tmp_path)
    code = ("import sys; sys.modules.update(textual=None, rich=None, plotext=None); "
            "from kopt_tui.main import main; sys.exit(main(sys.argv[1:]))")
    done = subprocess.run([sys.executable, "-c", code, *words, "--workspace", str(tmp_path)],
                          capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


def test_workspace_comes_from_flag_then_variable_then_folder(tmp_path: Path) -> None:
    write_campaign(tmp_path / "workspace")
    for done in (kopt("status", "--json", workspace=tmp_path / "workspace"),
                 kopt("--workspace", str(tmp_path / "workspace"), "status", "--json"),
                 kopt("status", "--json", KOPT_WORKSPACE=str(tmp_path / "workspace")),
                 kopt("status", "--json", cwd=tmp_path)):
        assert [campaign["campaign"]["id"] for campaign in answer(done)["campaigns"]] == [NAME]


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    writer = Writer(tmp_path)
    with writer.transaction():
        for number in range(3000):
            writer.event(NAME, "log", message=f"line {number} " + "x" * 60)
    writer.close()
    command = f"{sys.executable} -m kopt_tui.main events -n 0 --json --workspace {tmp_path}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{command} | head -n 1"], cwd=ROOT,
                          capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["kind"] == "campaign.created"


def test_ctrl_c_ends_quietly(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    process = subprocess.Popen([sys.executable, "-m", "kopt_tui.main", "events", "--follow",
                                "--workspace", str(tmp_path)], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert "campaign created" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


def test_output_works_on_a_terminal_without_unicode(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    for verb in ("status", "show"):
        done = kopt(verb, workspace=tmp_path, PYTHONIOENCODING="ascii")
        assert done.returncode == 0 and NAME in done.stdout
        whole = kopt(verb, workspace=tmp_path, PYTHONIOENCODING="utf-8").stdout
        assert not whole.isascii() and done.stdout.count("?") == whole.count("?")


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [("status", "<&-", 0), ("status", ">&-", 0), ("status", "<&- >&- 2>&-", 0), ("", "<&-", 3),
     ("new", "<&-", 2), ("submit -", "<&-", 2), ("stauts", "2>&-", 2)])
def test_closed_standard_streams_are_tolerated(
        words: str, closed: str, code: int, tmp_path: Path) -> None:
    write_campaign(tmp_path, state="running")
    command = f"exec {sys.executable} -m kopt_tui.main --workspace {tmp_path} {words} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=30,
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_manifest_verb_checks_a_manifest(tmp_path: Path) -> None:
    good, bad, other = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "other.yaml"
    good.write_text("target_op: rmsnorm\n")
    shutil.copy(ROOT / "examples/rmsnorm_c/task.yaml", tmp_path)
    bad.write_text("target_op: rmsnorm\naproval: auto\n")
    other.write_text("target_op: x\ntarget: {kind: command, csv: x.csv, check: ok, metrics: [us]}\n"
                     "benchmark_command: python bench.py\n")
    assert "a valid manifest for rmsnorm" in kopt("manifest", str(good)).stdout
    assert answer(kopt("manifest", str(good), "--json"))["project"] == str(tmp_path)
    assert "approval: flagged" in kopt("manifest", str(good), "--full").stdout
    done = kopt("manifest", str(bad))
    assert done.returncode == 2
    assert error_text(done) == f"{bad}:2: unknown key 'aproval' (did you mean 'approval'?)"
    assert kopt("manifest", str(other)).returncode == 2
    schema = answer(kopt("manifest", "--schema"))
    assert "max_iterations" in schema["properties"] and schema["required"] == ["target_op"]


def test_gpus_lists_the_cpu() -> None:
    listed = answer(kopt("gpus", "--json"))["devices"]
    assert listed[0]["device"]["id"] == "cpu" and listed[0]["state"]["memory_total"] > 0
    table = kopt("gpus").stdout
    assert table.startswith("id") and "cores" in table and harmless(table)

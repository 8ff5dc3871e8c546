"""Tests `kopt propose`, `evaluate` and `loop`: refusals, and continuing a killed loop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.verify import harness_client
from harness.requests import EvaluateRequest
from harness.search.trials.trials import LoopResult
from harness.verdict import Verdict
from kopt_tui.main import main
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.json_schema import answer_faults
from tests.support.paths import ROOT
from tests.support.programs import processes
from tests.support.programs.command_line import error_text, kopt

KERNEL = campaigns.KERNEL.replace("in [1, 16] times", f"in {list(range(1, 17))} times").replace(
    "in [1, 2] steps", "in [1, 2] reserved: steps")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaigns.project(tmp_path_factory.mktemp("loop") / "p", kernel=KERNEL,
                             budget={"pairs": 2})


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    """Run the command in this process; its standard output must be one JSON document."""
    code = main([*map(str, words), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert "error" in value or answer_faults([*map(str, words)], value) == []
    return code, value


def test_propose_documents_the_space(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run_json(capsys, "propose", manifest)
    assert code == 0 and answer["size"] == 16
    assert answer["objective"]["latency_kind"] == "measured-cpu"
    assert answer["search_space"] == {
        "PASSES": {"type": "int", "choices": list(range(1, 17)), "default": 16, "line": 3,
                   "minimum": 1.0, "maximum": 16.0,
                   "desc": "times that all is computed", "reserved": False},
        "FORWARD": {"type": "int", "choices": [1, 2], "default": 1, "line": 4, "desc": "steps",
                    "minimum": 1.0, "maximum": 2.0, "reserved": True}}
    assert answer["incumbent"]["config"] == {"PASSES": 16, "FORWARD": 1}
    assert answer["frozen"] == ["reference.py", "task.yaml"]


@pytest.mark.parametrize(("config", "words"), [
    ({"PASSES": 17}, "'PASSES' cannot be 17 (int), one of 1, 2,"),
    ({"PASSES": True}, "cannot be True (bool)"), ({"PASSES": "1"}, "cannot be '1' (str)"),
    ({"PASSES": 1.0}, "cannot be 1.0 (float)"), ({"PASSES": None}, "cannot be None"),
    ({"PASSES": [1]}, "cannot be [1] (list)"), ({"PASSES": {"PASSES": 1}}, "(dict)"),
    ({"PASSES": "\x1b[31m" + "9" * 5000}, "…"), ({"PASSES": -1}, "cannot be -1"),
    ({"FORWARD": 2}, "'FORWARD' is reserved: it stays 1"),
    ({"PASSES": 0, "FORWARD": 2}, "reserved"), ({"PASSES": 0, "NONE": 2}, "cannot be 0")])
def test_invalid_configuration_is_rejected(config: dict[str, object], words: str, manifest: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    code, verdict = run_json(capsys, "evaluate", manifest, "--config", json.dumps(config))
    assert code == 1
    assert (verdict["valid"], verdict["correct"], verdict["latency_us"]) == (False, False, None)
    assert words in verdict["rejected_reason"] and verdict["rejected_reason"].isprintable()
    assert len(verdict["rejected_reason"]) < 400 and verdict["candidate_id"]


@pytest.mark.parametrize(("config", "what"), [
    ("[1]", "is not a JSON object of names and values"), ("1", "is not a JSON object of names"),
    ("{", "is not JSON: Input data was truncated"), ("", "is not JSON: "), ("nul", "is not JSON: "),
    ("{A: 1}", "is not JSON: object keys must be strings at character 2"),
    ('{"A": NaN}', "is not JSON: invalid character at character 7")])
def test_config_that_is_not_an_object_is_bad_usage(config: str, what: str, manifest: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run_json(capsys, "evaluate", manifest, f"--config={config}")
    assert code == 2 and answer["error"]["what"].startswith(f"--config: {config!r} {what}".rstrip())
    assert answer["error"]["fix"] == """write for example --config '{"TILE": 32}'"""


def test_configuration_without_a_known_knob_is_rejected_before_it_runs(
        manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        ) -> None:
    monkeypatch.delattr(harness_client, "evaluate")
    code, verdict = run_json(capsys, "evaluate", manifest, "--config", '{"PASES": 1}')
    assert code == 1 and verdict["rejected_reason"].startswith(
        "no knob 'PASES' in scale.c; its knobs: PASSES, ")
    assert verdict["notes"] == []


def test_unknown_knobs_are_dropped_with_a_note(
        manifest: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        ) -> None:
    def harness(request: EvaluateRequest, **_: object) -> Verdict:
        source = (Path(request.trees.candidate) / "scale.c").read_text()
        assert source == KERNEL.replace("PASSES 16", "PASSES 1")
        return Verdict(valid=True, correct=True, notes=("harness",))

    monkeypatch.setattr(harness_client, "evaluate", harness)
    code, verdict = run_json(capsys, "evaluate", manifest, "--config",
                          '{"PASSES": 1, "FORWARD": 1, "LATER": [1]}')
    assert code == 0 and verdict["notes"] == ["no knob 'LATER': ignored", "harness"]


@pytest.mark.parametrize(("words", "candidate", "incumbent"), [
    ((), "edited", "edited"), (("--base", "HEAD"), "edited", "committed"),
    (("--ref", "HEAD"), "committed", "committed"),
    (("--config", '{"PASSES": 1}'), "configured", "edited")])
def test_working_files_are_judged_unless_a_commit_is_named(
        words: tuple[str, ...], candidate: str, incumbent: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = campaigns.project(tmp_path / "p", kernel=KERNEL)
    edited = KERNEL.replace("i++", "++i")
    (tmp_path / "p" / "scale.c").write_text(edited)
    sources = {"committed": KERNEL, "edited": edited,
               "configured": edited.replace("PASSES 16", "PASSES 1")}

    def harness(request: EvaluateRequest, **_: object) -> Verdict:
        trees = request.trees
        assert [(Path(tree) / "scale.c").read_text() for tree in (
            trees.candidate, trees.incumbent)] == [sources[candidate], sources[incumbent]]
        return Verdict(valid=True, correct=True)

    monkeypatch.setattr(harness_client, "evaluate", harness)
    assert run_json(capsys, "evaluate", manifest, *words)[0] == 0
    assert (tmp_path / "p" / "scale.c").read_text() == edited


def test_folder_inside_a_repository_can_be_a_project(tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """The examples are such folders. kopt reads the working files and writes nothing there."""
    inner = campaigns.project(tmp_path / "outer" / "kernels" / "scale", kernel=KERNEL).parent
    shutil.rmtree(inner / ".git")
    outer = tmp_path / "outer"
    repos.git(outer, "init", "-q")
    before = sorted(path for path in outer.rglob("*"))
    code, answer = run_json(capsys, "propose", inner / "manifest.yaml")
    assert code == 0 and answer["size"] == 16
    assert sorted(path for path in outer.rglob("*")) == before


class Started:
    """A running `kopt loop` and its record."""

    def __init__(self, manifest: Path, workspace: Path, *words: str) -> None:
        self.workspace = workspace
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kopt_tui.main", "loop", str(manifest), "--budget", "16",
             "--json", "--workspace", str(workspace), *words], text=True, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ})

    def trials(self) -> list[dict[str, Any]]:
        records = list(self.workspace.glob("loops/*/trials.jsonl"))
        text = records[0].read_text() if records else ""
        return [json.loads(line) for line in text.split("\n")[1:-1] if line.endswith("}")]

    def ended_by(self, number: int, trials: int) -> tuple[int, str, str]:
        """Send a signal after some trials; return exit code, stdout and stderr."""
        campaigns.until(lambda: len(self.trials()) >= trials or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.slow
def test_killed_loop_continues_with_its_trials(manifest: Path, tmp_path: Path) -> None:
    started = Started(manifest, tmp_path)
    code, out, _ = started.ended_by(signal.SIGKILL, 2)
    assert (code, out) == (-signal.SIGKILL, "")
    campaigns.until(lambda: not processes.marked(str(tmp_path)))
    before = started.trials()
    [record] = tmp_path.glob("loops/*")
    with (record / "trials.jsonl").open("a") as file:
        file.write('{"number": 99, "config": {"PAS')
    (record / "results.tsv").write_text("")
    again = Started(manifest, tmp_path)
    code, out, err = again.ended_by(signal.SIGINT, len(before) + 2)
    done = json.loads(out)
    after = done["trials"]
    assert (code, after) == (130, again.trials()) and after[:len(before)] == before
    assert f"continuing after {len(before)} recorded trial" in err and "1 torn line left out" in err
    assert [trial["number"] for trial in after] == list(range(len(after)))
    assert len({trial["config"]["PASSES"] for trial in after}) == len(after) >= len(before) + 2
    assert after[0]["config"] == {"PASSES": 16} and after[0]["tag"] == "kept"
    rows = (record / "results.tsv").read_text().splitlines()[1:]
    assert sorted(int(row.split("\t")[0]) for row in rows) == list(range(len(after)))
    assert (record / "results.tsv") == Path(done["results_tsv"])
    corpus = [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]
    assert {trial["candidate_id"] for trial in corpus} >= {trial["candidate_id"] for trial in after}
    assert done["best"] == [trial for trial in after if trial["tag"] == "kept"][-1]["config"]


@pytest.mark.parametrize(("low", "advice"), [(0.9, "next: leave the present values"),
                                             (1.1, "next: write these values into scale.c")])
def test_loop_says_what_to_do_with_its_best_values(
        low: float, advice: str, manifest: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(harness_client, "loop", lambda *_, **__: LoopResult(
        best={"PASSES": 1}, source="", log_ratio=0.5, trials=(), space_size=16))
    monkeypatch.setattr(harness_client, "evaluate", lambda *_, **__: Verdict(
        valid=True, correct=True, latency_us=5.0, latency_kind="measured-cpu", speedup=low + 0.1,
        speedup_low=low, speedup_high=low + 0.2))
    assert main(["loop", str(manifest), "--workspace", str(tmp_path)]) == 0
    assert advice in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_second_loop_is_refused_and_an_interrupted_one_says_how_to_continue(
        manifest: Path, tmp_path: Path) -> None:
    started = Started(manifest, tmp_path)
    campaigns.until(lambda: started.trials() or started.process.poll() is not None)
    second = kopt("loop", str(manifest), "--budget", "2", "--json", workspace=tmp_path)
    assert second.returncode == 1
    assert "another loop is running with these trials" in second.stderr.splitlines()[-1]
    assert json.loads(second.stdout)["error"]["exit_code"] == 1
    code, out, err = started.ended_by(signal.SIGINT, 1)
    stopped = json.loads(out)
    assert code == 130 and stopped["stopped"] and stopped["verdict"] is None
    assert stopped["trials"] == started.trials() and stopped["space_size"] == 16
    assert "repeat the command to continue" in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.slow  # tests/harness tests loops and verdicts
def test_loop_ends_with_a_verdict_on_the_best(manifest: Path, tmp_path: Path) -> None:
    process = Started(manifest, tmp_path, "--budget", "2").process
    out, err = process.communicate(timeout=200)
    done = json.loads(out)
    assert process.returncode == 0 and done["verdict"]["correct"] and not done["stopped"], err
    assert done["verdict"]["latency_kind"] == "measured-cpu" and len(done["trials"]) == 2
    assert (
        done["best"] == [trial for trial in done["trials"] if trial["tag"] == "kept"][-1]["config"]
    )
    assert Path(done["results_tsv"]).is_file() and done["results_tsv"] in err


def test_loop_needs_a_knob_and_a_positive_budget(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", kernel=campaigns.KERNEL.replace("kopt:", ""))
    done = kopt("loop", str(manifest), workspace=tmp_path / "w")
    assert done.returncode == 2 and "declares no knob" in done.stderr.splitlines()[-1]
    assert (
        error_text(kopt("loop", str(manifest), "--budget", "0"))
        == "--budget must be from 1 to 100000"
    )

"""`kopt propose` and `kopt loop` work on a target that the project's own benchmark measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.run.space_document import Proposal
from harness.search.trials import trial_log
from kopt_tui.cli.parser import answer_schema
from kopt_tui.main import main
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns
from tests.support.json_schema import answer_faults, faults

KERNEL = ("COST = 100.0  # kopt: knob COST in [100.0, 80.0, 60.0] what it costs\n"
          "STEP = 1  # kopt: knob STEP in [1, 2] reserved: a step\n"
          "# kopt: require COST >= 60\n\ndef err(m):\n    return 0\n")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = benchmark_case.project(tmp_path_factory.mktemp("loop") / "p")
    (path.parent / "kernel.py").write_text(KERNEL)
    return path


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    code = main([*map(str, words), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert "error" in value or answer_faults([*map(str, words)], value) == []
    return code, value


def test_proposal_follows_its_schema(manifest: Path, tmp_path: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    schema = answer_schema(Proposal)
    kernel = campaigns.project(tmp_path / "k")
    for path, kind in ((manifest, "command"), (kernel, "kernel")):
        code, proposed = run_json(capsys, "propose", path)
        assert (code, proposed["kind"]) == (0, kind)
        assert faults(proposed, schema) == []
        broken = {**proposed, "size": "many", "objective": {}}
        assert len(faults(broken, schema)) >= 4
        source = path.parent / proposed["source"]
        assert proposed["incumbent"]["source"] == source.read_text()


def test_proposal_of_a_benchmark_documents_its_space(
        manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, proposed = run_json(capsys, "propose", manifest)
    assert code == 0
    assert proposed["search_space"]["COST"] == {
        "type": "float", "choices": [100.0, 80.0, 60.0], "default": 100.0, "minimum": 60.0,
        "maximum": 100.0, "reserved": False, "line": 1, "desc": "what it costs"}
    assert (proposed["reserved"], proposed["constraints"]) == (["STEP"], ["COST >= 60"])
    assert proposed["incumbent"]["config"] == {"COST": 100.0, "STEP": 1} and proposed["size"] == 3
    assert proposed["objective"]["metrics"] == ["fwd_us", "bwd_us"]
    assert proposed["objective"]["latency_kind"] == "reported"


@pytest.mark.slow
def test_loop_searches_by_whole_runs_and_continues(
        manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best gets a full verdict; a second command continues with the recorded trials."""
    words = ("loop", manifest, "--workspace", tmp_path / "w")
    code, first = run_json(capsys, *words, "--budget", 2)
    assert code == 0 and len(first["trials"]) == 2
    code, answer = run_json(capsys, *words, "--budget", 9)
    assert (code, answer["earlier"], answer["space_size"]) == (0, 2, 3)
    assert answer["trials"][:2] == first["trials"] and len(answer["trials"]) == 3
    assert answer["best"] == {"COST": 60.0}
    assert answer["verdict"]["valid"] and answer["verdict"]["speedup"] == pytest.approx(5 / 3, 0.01)
    assert len(trial_log.recorded(Path(answer["record"]))) == 3
    code, proposed = run_json(capsys, "propose", manifest)
    assert proposed["incumbent"]["id"] == answer["trials"][0]["candidate_id"]


def test_benchmark_without_a_named_source_says_what_to_write(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = benchmark_case.project(tmp_path / "p", edit=["*.py"])
    for verb in ("propose", "loop"):
        code, answer = run_json(capsys, verb, manifest)
        assert code == 2 and answer["error"]["where"] == "kernel_source"

"""`kopt new`, a campaign and `kopt report` work on a definition of flashinfer-bench."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from engine.campaign import setup as campaign_setup
from harness.formats import yaml_document
from tests.support import json_schema, repos
from tests.support.benchmarks import bench_case, bench_schemas
from tests.support.engines import campaigns

SLOW = """import torch

PASSES = 16  # kopt: knob PASSES in [1, 16]


def run(table, offsets, rows, scale, out):
    lengths = offsets.diff().long()
    owners = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
    for _ in range(PASSES):
        sums = torch.zeros(out.shape).index_add_(0, owners, table[rows.long()].float())
        out.copy_(sums * scale)
"""
SOURCE = f"solutions/{bench_case.NAME}/src/main.py"


@pytest.mark.slow  # 53 s on two busy cores
def test_definition_is_made_faster_and_reported_in_the_format_of_the_bench(tmp_path: Path) -> None:
    data, workspace = tmp_path / "data", tmp_path / "w"
    path = bench_case.write(data, lines=bench_case.LINES[:1])
    solution = bench_case.solution()
    solution["sources"][0]["content"] = SLOW
    (data / "solution.json").write_text(json.dumps(solution))
    (data / "tuned.json").write_text('[{"PASSES": 1}]')
    repos.git(data, "init", "-q")
    code, _, error = campaigns.command(
        "new", str(path), "--project", str(data), "--solution", str(data / "solution.json"),
        "--knobs", str(data / "tuned.json"), "--yes", "--rounds", "1", "--approval", "auto",
        "--backends", "inbox", workspace=workspace)
    assert code == 0, error
    manifest = data / "manifest.yaml"
    manifest.write_text(manifest.read_text() + yaml_document.dump({
        "budget": {"pairs": 16}, "decision": {"alpha": 0.2, "looks": 4}}))
    repos.git(data, "add", "-A")
    repos.git(data, "commit", "-q", "-m", "start")

    setup = campaign_setup.create(workspace, manifest)
    campaigns.hand_in(setup, SLOW.replace("PASSES = 16", "PASSES = 1"), source=SOURCE)
    campaigns.run(setup)

    code, out, error = campaigns.command("report", "--format", "triton-config",
                                         workspace=workspace)
    assert code == 0, error
    assert json.loads(out) == {"bags2-picked5": {"PASSES": 1}}
    code, _, error = campaigns.command("report", "--format", "flashinfer", "--output",
                                       str(tmp_path / "out"), workspace=workspace)
    assert code == 0, error
    [made] = (tmp_path / "out" / "solutions").rglob("*.json")
    written = json.loads(made.read_text())
    assert json_schema.faults(written, bench_schemas.SOLUTION) == []
    assert "PASSES = 1 " in written["sources"][0]["content"]
    [made] = (tmp_path / "out" / "traces").rglob("*.jsonl")
    [trace] = [json.loads(line) for line in made.read_text().splitlines()]
    assert json_schema.faults(trace, bench_schemas.TRACE) == []
    assert trace["solution"] == written["name"]
    assert trace["evaluation"]["performance"]["speedup_factor"] > 1
    libraries = trace["evaluation"]["environment"]["libs"]
    assert libraries["torch"].startswith(metadata.version("torch"))
    assert libraries["triton"] == metadata.version("triton")

"""Guards the whole way of a flashinfer-bench definition: new, run, report in the bench's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.formats import yaml_document
from tests.support import bench_case, campaigns, repos

SLOW = """import torch

PASSES = 16  # kopt: knob PASSES in [8, 16]


def run(table, offsets, rows, scale, out):
    lengths = offsets.diff().long()
    owners = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
    for _ in range(PASSES):
        sums = torch.zeros(out.shape).index_add_(0, owners, table[rows.long()].float())
        out.copy_(sums * scale)
"""


@pytest.mark.slow
def test_definition_is_made_faster_and_reported_in_the_form_of_the_bench(tmp_path: Path) -> None:
    data, workspace = tmp_path / "data", tmp_path / "w"
    path = bench_case.write(data)
    solution = bench_case.solution()
    solution["sources"][0]["content"] = SLOW
    (data / "solution.json").write_text(json.dumps(solution))
    (data / "tuned.json").write_text('[{"PASSES": 1}]')
    repos.git(data, "init", "-q")

    code, _, error = campaigns.command(
        "new", str(path), "--project", str(data), "--solution", str(data / "solution.json"),
        "--knobs", str(data / "tuned.json"), "--yes", workspace=workspace)
    assert code == 0, error
    manifest = data / "manifest.yaml"
    manifest.write_text(manifest.read_text() + yaml_document.dump({
        name: campaigns.MANIFEST[name] for name in ("budget", "decision", "pool")}))
    text = manifest.read_text().replace("max_iterations: 10", "max_iterations: 1")
    manifest.write_text(text + "approval: auto\n" * ("approval" not in text))
    repos.git(data, "add", "-A")
    repos.git(data, "commit", "-q", "-m", "start")
    code, out, error = campaigns.ended(campaigns.kopt(
        "run", str(manifest), "--wait", workspace=workspace), 900)
    assert code == 0, (out, error)

    code, out, error = campaigns.command("report", "--format", "triton-config",
                                         workspace=workspace)
    assert code == 0, error
    assert {each["PASSES"] for each in json.loads(out).values()} == {1}
    code, _, error = campaigns.command("report", "--format", "flashinfer", "--output",
                                       str(tmp_path / "out"), workspace=workspace)
    assert code == 0, error
    [made] = (tmp_path / "out" / "solutions").rglob("*.json")
    source = json.loads(made.read_text())["sources"][0]["content"]
    assert source.replace("PASSES = 1 ", "PASSES = 16 ").startswith(SLOW[:30])
    assert "PASSES = 1 " in source
    [made] = (tmp_path / "out" / "traces").rglob("*.jsonl")
    traces = [json.loads(line) for line in made.read_text().splitlines()]
    assert len(traces) == 3
    assert all(trace["evaluation"]["performance"]["speedup_factor"] > 1 for trace in traces)

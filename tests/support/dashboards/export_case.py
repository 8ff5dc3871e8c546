"""Finished campaigns with a kept commit and a headline verdict, for exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.journal.write import Writer
from harness.formats import yaml_document
from harness.verdict import Row
from tests.support import repos
from tests.support.dashboards import samples


def finished(workspace: Path, project: Path, name: str, task: str, kept: dict[str, str],
             rows: tuple[Row, ...], target_knobs: str = "", **fields: Any) -> None:
    """Record a finished campaign; if `kept` has files, its kept commit writes them."""
    base = repos.git(project, "rev-parse", "HEAD")
    best = repos.commit(project, kept, "faster") if kept else base
    folder = workspace / name
    folder.mkdir(parents=True)
    repos.git(project, "clone", "-q", "--bare", str(project), str(folder / "repo.git"))
    repos.git(project, "reset", "-q", "--hard", base)
    (folder / "manifest.yaml").write_text(yaml_document.dump({
        "target_op": name, "project": str(project), "target": {
            "kind": "kernel", "task": task, "knobs": target_knobs}}))
    writer = Writer(workspace)
    writer.add_campaign(samples.campaign(
        name, path=str(folder), project=str(project), base_commit=base, best_commit=best,
        state="finished", device="cpu", gpu="Some Card", created_at=1000.0, **fields))
    if kept:
        verdict = samples.verdict(best[:12], rows=rows, **{
            key: fields[key] for key in ("speedup", "speedup_low", "speedup_high")
            if key in fields})
        writer.start_round(samples.round_(1, name))
        writer.add_candidate(samples.candidate(best[:12], name, base_commit=base))
        writer.add_decision(name, best[:12], "keep", "faster", round=1, actor="judge",
                            commit=best)
        writer.set_candidate_state(name, best[:12], "keeping", commit=best)
        writer.set_candidate_state(name, best[:12], "kept", commit=best)
        writer.add_verdict(name, best[:12], verdict, purpose="headline")
    writer.close()


def row(name: str, latency_us: float, baseline_us: float) -> Row:
    return Row(config_class=name, correct=True, outcome="faster", latency_us=latency_us,
               incumbent_us=baseline_us, max_abs_err=1e-6, max_rel_err=2e-6)

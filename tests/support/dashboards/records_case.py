"""Writes a campaign into a journal: one gain, then six regressions, then a stop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.records import Bottleneck
from engine.journal.write import Writer
from engine.manifest import load
from engine.manifest.schema import Manifest
from engine.records.writer import Records
from harness.search.trials.trials import Trial
from harness.verdict import Evidence, Row, Transfer
from tests.support.dashboards import samples

BENCHMARK, TEST = "python bench.py --all", "python test_scale.py"
KEPT = "k" * 40
PATCH = """\
diff --git a/src/scale.c b/src/scale.c
--- a/src/scale.c
+++ b/src/scale.c
@@ -1 +1 @@
-int n = 1;
+int n = 4;
"""


class Lineage:
    """The part of the campaign's repository that records read."""

    def files(self, commit: str) -> list[str]:
        return ["README.md", "src/scale.c"]

    def read(self, commit: str, path: str) -> bytes:
        return f"{path} of {commit}\n".encode()


def make_records(workspace: Path) -> Records:
    manifest = Manifest(target_op="rmsnorm", test_command=TEST, benchmark_command=BENCHMARK,
                        e2e_command="python serve.py")
    setup = SimpleNamespace(
        workspace=workspace, id="rms", folder=Folder.create(workspace / "campaign"),
        repo=Lineage(), edit=("src/**",), target=SimpleNamespace(op="rmsnorm"),
        device=SimpleNamespace(name="cpu0"), manifest=manifest)
    setup.folder.manifest.write_text(load.dump(manifest))
    return Records(cast(Any, setup))


def lose(writer: Writer, folder: Folder, n: int, name: str, *, idea: str = "") -> None:
    """Record a round whose one candidate is a regression."""
    writer.start_round(samples.round_(n))
    writer.put_slots([samples.slot("fixed", round=n, hypothesis=f"idea {n}", bottleneck="b1")])
    add_candidate(writer, folder, name, n, idea or f"idea | {n}")
    row = Row(config_class="tall", correct=True, latency_us=12.5, log_ratio=-0.22)
    number = writer.add_verdict("rms", name, samples.verdict(
        name, latency_us=12.5, speedup=0.8, speedup_low=0.79, speedup_high=0.81, rows=(row,)),
        purpose="verify")
    writer.add_decision("rms", name, "regression", "slower", round=n, actor="engine",
                        verdict=number)
    writer.set_candidate_state("rms", name, "closed")
    writer.end_slot("rms", n, "fixed", stage="regression", candidate=name)
    writer.spend("rms", n, seconds=12.0, trials=3)
    writer.end_round("rms", n, outcome="regression", summary="1 candidates: 1 regression",
                     best_speedup=1.54)


def reject(writer: Writer, folder: Folder, n: int, name: str, reason: str, *,
           is_fault: bool = False, **fields: Any) -> None:
    """Record a rejected candidate with its verdict, in a round that exists."""
    add_candidate(writer, folder, name, n, f"try {name}")
    given = {"valid": False, "correct": False, "rejected_reason": reason, "latency_us": None,
             "latency_kind": None, "speedup": None, "speedup_low": None, "speedup_high": None}
    number = writer.add_verdict("rms", name, samples.verdict(name, **(given | fields)),
                                purpose="verify")
    writer.add_decision("rms", name, "reject", reason, round=n, actor="engine", verdict=number,
                        is_fault=is_fault)
    writer.set_candidate_state("rms", name, "closed")


def keep(writer: Writer, folder: Folder, n: int, name: str, commit: str, *, speedup: float = 1.5,
         actor: str = "engine", idea: str = "unroll by 4", bottleneck: str = "b1",
         **fields: Any) -> None:
    """Record that a candidate was kept, in a round that exists."""
    add_candidate(writer, folder, name, n, idea, bottleneck=bottleneck)
    number = writer.add_verdict("rms", name, samples.verdict(
        name, speedup=speedup, speedup_low=speedup * 0.97, speedup_high=speedup * 1.03, **fields),
        purpose="verify")
    writer.add_decision("rms", name, "keep", f"{speedup:.2f}x", round=n, actor=actor,
                        verdict=number, commit=commit)
    writer.set_candidate_state("rms", name, "kept", commit=commit)
    writer.set_campaign("rms", kind="campaign.best", payload={}, best_commit=commit)


def headline(writer: Writer, commit: str, speedup: float, **fields: Any) -> None:
    """Record the gain of the best over the baseline."""
    writer.add_verdict("rms", commit[:12], samples.verdict(
        commit[:12], speedup=speedup, speedup_low=speedup * 0.97, speedup_high=speedup * 1.03,
        **fields), purpose="headline")
    writer.set_campaign("rms", kind="campaign.best", payload={}, speedup=speedup,
                        speedup_low=speedup * 0.97, speedup_high=speedup * 1.03)


def end_to_end(writer: Writer, speedup: float, note: str = "three runs in turn") -> None:
    """Record the gain of the whole program."""
    writer.add_verdict("rms", KEPT[:12], samples.verdict(
        KEPT[:12], latency_kind="reported", speedup=speedup, speedup_low=speedup - 0.01,
        speedup_high=speedup + 0.01, notes=(note,)), purpose="e2e")


def add_candidate(writer: Writer, folder: Folder, name: str, n: int, idea: str, *,
                  bottleneck: str = "b1") -> None:
    path = folder.patches / f"{name}.patch"
    path.write_text(PATCH)
    writer.add_candidate(samples.candidate(name, round=n, slot="fixed", hypothesis=idea,
                                           bottleneck=bottleneck,
                                           patch_path=f"patches/{path.name}"))


def begin(workspace: Path, *rounds: int, **fields: Any) -> tuple[Records, Writer]:
    """Record a campaign with its baseline, and the start of further rounds."""
    records, writer = make_records(workspace), Writer(workspace)
    writer.add_campaign(samples.campaign(path=str(records.folder.path), **fields))
    writer.start_round(samples.round_(1))
    rows = tuple(Row(config_class=name, correct=True, latency_us=at, incumbent_us=at, core=True)
                 for name, at in (("tall", 10.0), ("odd", 4.0)))
    writer.add_verdict("rms", "baseline", samples.verdict(
        "baseline", speedup=1.0, speedup_low=0.99, speedup_high=1.01, rows=rows),
        purpose="baseline")
    writer.end_round("rms", 1, outcome="baseline", best_speedup=1.0, summary="baseline")
    for n in rounds:
        writer.start_round(samples.round_(n))
    return records, writer


def record_campaign(workspace: Path) -> tuple[Records, Reader, Writer]:
    """Record a campaign with one gain, then six regressions, then a stop."""
    records, writer = begin(workspace, 2)
    writer.put_bottlenecks("rms", 2, [Bottleneck(
        campaign="rms", round=2, rank=1, id="b2.1", kernel="scale_kernel", config_class="tall",
        limiter="memory", metric="% of roofline", value=41.0, detail="d", advice="move less")])
    records.trials(2, cast(Any, SimpleNamespace(slot="fixed")), trials(), writer)
    rows = (Row(config_class="tall", correct=True, outcome="faster", latency_us=6.5,
                incumbent_us=10.0, log_ratio=0.43),)
    keep(writer, records.folder, 2, "c1", KEPT, rows=rows, transfer=Transfer(
        bucket="K1", decision="ACCEPT-as-real", reason="kernel only"),
         evidence=(Evidence(kind="launch", detail="tall: 2 launches"),))
    headline(writer, KEPT, 1.54, latency_us=6.5, rows=rows)
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.54, summary="1 candidates: 1 keep")
    for n in range(3, 9):
        if n == 5:
            writer.event("rms", "stagnation", "5", round=5, depth="review", rollbacks=2,
                         demands="leave the old direction", directions=["A", "B", "C"])
        lose(writer, records.folder, n, f"c{n}")
    writer.event("rms", "campaign.stop", KEPT, reason="5 consecutive measured regressions",
                 wall_s=90.4, trials=18, cost=0.5, waiting=1)
    return records, Reader(workspace), writer


def trials() -> list[Trial]:
    return [Trial(number=0, config={"UNROLL": 1}, correctness="PASS", tag="tried",
                  latency_us=10.0, latency_kind="measured-cpu"),
            Trial(number=1, config={"UNROLL": 4}, correctness="FAIL", tag="revert",
                  reason="class tall\tdiffers")]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}

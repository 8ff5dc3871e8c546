"""A journal as a campaign leaves it, for tests and benchmarks of the dashboard.

An rmsnorm campaign of three rounds with four slots each: kept, tied, slower and rejected
candidates, one that waits for approval, and texts as a hostile worker would write them.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.journal.database import open_for_writing
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.liveness import Lease
from engine.journal.records import Bottleneck, Campaign, Candidate, Event, Round, Slot
from engine.journal.rows import payload, store
from harness.verdict import Evidence, Finding, Row, Verdict

NOW = 1_795_183_200.0  # 2026-11-20 14:00:00 UTC
CAMPAIGN = "rmsnorm_c_cpu_20261120"
HOSTILE = "[red]x[/] \x1b[2J\x1b]0;owned\x07 \u202egnp.exe [link=http://x]"
LONG = "unroll " * 1430
PATCH = """\
diff --git a/rmsnorm.c b/rmsnorm.c
index 3f1c2ab..9d02c11 100644
--- a/rmsnorm.c
+++ b/rmsnorm.c
@@ -14,11 +14,20 @@ void rmsnorm(const float *x, const float *weight, float *out,
              int64_t rows, int64_t cols, float eps)
 {
     for (int64_t r = 0; r < rows; r++) {
-        float sum = 0.0f;
-        for (int64_t c = 0; c < cols; c++)
-            sum += x[r * cols + c] * x[r * cols + c];
+        const float *row = x + r * cols;
+        float part[LANES] = {0};  /* independent sums, so that the loop vectorises */
+        int64_t c = 0;
+        for (; c + LANES <= cols; c += LANES)
+            for (int lane = 0; lane < LANES; lane++)
+                part[lane] += row[c + lane] * row[c + lane];
+        float sum = 0.0f;
+        for (int lane = 0; lane < LANES; lane++)
+            sum += part[lane];
+        for (; c < cols; c++)
+            sum += row[c] * row[c];
         float scale = 1.0f / sqrtf(sum / cols + eps);
         for (int64_t c = 0; c < cols; c++)
             out[r * cols + c] = x[r * cols + c] * scale * weight[c];
     }
 }
"""

# slot, decision, overall ratio, half width, reason, hypothesis, minutes before NOW
ROUND: Sequence[tuple[str, str, float | None, float, str, str, int]] = (
    ("search", "keep", 1.84, 0.03, "all 3 classes faster, gain repeats after formatting",
     "BLOCK=8 and -funroll-loops on the inner product", 34),
    ("plan-1", "runner-up", 1.41, 0.04, "faster, but less than the kept one",
     "split the sum over 4 accumulators", 33),
    ("rewrite", "reject", None, 0, "does not compile: rmsnorm.c:21: unknown type name '__m513'",
     "AVX-512 intrinsics for the reduction", 31),
    ("fixed", "tie", 1.004, 0.012, "within the margin of 1%", "compiler flags only", 30),
)
ROUNDS: Sequence[Sequence[tuple[str, str, float | None, float, str, str, int]]] = (
    ROUND,
    (("search", "tie", 0.998, 0.009, "within the margin of 1%", "BLOCK=16", 25),
     ("plan-1", "regression", 0.91, 0.02, "square 9% slower: the tail loop is scalar",
      "process two rows at a time", 24),
     ("rewrite", "keep", 1.72, 0.04, "all 3 classes faster", "LANES independent sums", 22),
     ("fixed", "reject", None, 0, "audit: writes past the end of out", HOSTILE, 21)),
    (("search", "regression", 0.97, 0.01, "tall 3% slower", LONG, 12),
     ("plan-1", "ask", 2.31, 0.06, "above 2x: a person has to look",
      "fuse both passes over a row that fits into L1", 9)),
)
CLASSES = (("tall", 1.10, True), ("square", 1.0, False), ("odd", 0.93, False))


def candidate_id(round: int, slot: str) -> str:
    """Return the id of the candidate that a slot of a round produced."""
    return hashlib.sha256(f"{round} {slot}".encode()).hexdigest()[:12]


def verdict_of(ratio: float | None, half: float, reason: str) -> Verdict:
    """Return a verdict with speedup `ratio` ± `half`, or a rejection if `ratio` is None."""
    if ratio is None:
        return Verdict(valid=False, rejected_reason=reason, device="cpu", audit=(
            Finding(rule="bounds", severity="reject", detail=reason),))
    rows = tuple(Row(
        config_class=name, correct=True, core=core, pairs=6, latency_us=212.0 / ratio / by,
        incumbent_us=212.0, log_ratio=math.log(ratio * by), low=math.log((ratio - half) * by),
        high=math.log((ratio + half) * by), pct_of_roofline=min(88.0, 22 * ratio * by),
        outcome="faster" if ratio > 1.01 else "tie" if ratio > 0.99 else "slower",
    ) for name, by, core in CLASSES)
    return Verdict(
        valid=True, correct=True, max_rel_err=3.1e-7, error_budget_used=0.03,
        latency_us=212.0 / ratio, latency_kind="measured-cpu", speedup=ratio,
        speedup_low=ratio - half, speedup_high=ratio + half, rows=rows, device="cpu",
        pct_of_roofline=40.0, incumbent_tree="t" * 40, notes=("6 process pairs",),
        evidence=(Evidence(kind="vectorised", detail="loop at rmsnorm.c:20, 32 byte vectors"),),
        audit=(Finding(rule="above-2x", severity="flag", detail="2.31x is unusual"),)
        if ratio > 2 else ())


class Journal:
    """Puts records with chosen times into a workspace's journal."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.db: sqlite3.Connection = open_for_writing(workspace)

    def put(self, *records: msgspec.Struct, numbered: str = "") -> None:
        """Insert records; `numbered` is the column that SQLite numbers."""
        with self.db:
            for record in records:
                store(self.db, record, without=numbered)

    def event(self, campaign: str, at: float, kind: str, ref: str = "", /, **facts: object) -> None:
        self.put(Event(seq=0, campaign=campaign, at=at, kind=kind, ref=ref,
                       payload=payload(facts)), numbered="seq")

    def close(self) -> None:
        self.db.close()


def campaign(now: float = NOW, **changes: object) -> Campaign:
    """Return the running campaign's record, with some fields changed."""
    fields: dict[str, object] = {
        "id": CAMPAIGN, "path": CAMPAIGN, "op": "rmsnorm", "backend": "c", "lang": "c",
        "gpu": "cpu", "device": "cpu", "project": "/home/ann/kernels", "base_commit": "b" * 40,
        "best_commit": "c" * 40, "state": "running", "phase": "verify", "round": 3,
        "rounds_max": 12, "speedup": 3.12, "speedup_low": 3.05, "speedup_high": 3.19,
        "created_at": now - 2400, "updated_at": now - 20} | changes
    return msgspec.convert(fields, Campaign)


def make(workspace: Path, now: float = NOW) -> Path:
    """Write the journal and the patch files of the campaign, and two older campaigns."""
    journal = Journal(workspace)
    journal.put(
        campaign(now),
        campaign(now, id="matmul_c_cpu_20261119", path="matmul_c_cpu_20261119", op="matmul",
                 state="finished", phase="", reason="12 rounds done", round=12, speedup=6.4,
                 speedup_low=6.31, speedup_high=6.52, created_at=now - 90000,
                 updated_at=now - 82000),
        campaign(now, id="softmax_triton_h200_20261118", path="softmax_triton_h200_20261118",
                 op="softmax", backend="triton", lang="triton", gpu="h200", device="cuda:0",
                 state="stopped", phase="", reason="stopped by ann", round=1, rounds_max=40,
                 speedup=None, speedup_low=None, speedup_high=None, best_commit="b" * 40,
                 created_at=now - 180000, updated_at=now - 172000))
    for n in range(1, 13):
        journal.put(Round(campaign="matmul_c_cpu_20261119", n=n, scope="cold", incumbent="b",
                          started_at=now - 90000 + n * 600, ended_at=now - 89500 + n * 600,
                          outcome="keep" if n in (1, 2, 5, 9) else "tie",
                          best_speedup=(1.9, 3.1, 3.1, 3.1, 4.8, 4.8, 4.8, 4.8, 6.4, 6.4, 6.4,
                                        6.4)[n - 1]))
    _rounds(journal, now)
    _now_running(journal, now)
    journal.close()
    return workspace


def _rounds(journal: Journal, now: float) -> None:
    patches = journal.workspace / CAMPAIGN / "patches"
    patches.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(PATCH.encode()).hexdigest()
    (patches / f"{digest}.patch").write_text(PATCH)
    number = 0
    for n, attempts in enumerate(ROUNDS, start=1):
        started, ended = now - 60 * attempts[0][-1] - 90, n < len(ROUNDS)
        journal.put(Round(
            campaign=CAMPAIGN, n=n, scope="hot" if n > 1 else "cold", incumbent="b" * 40,
            started_at=started, ended_at=now - 60 * attempts[-1][-1] if ended else None,
            outcome="keep" if ended else None, best_speedup=(1.81, 3.12)[n - 1] if ended else None))
        journal.event(CAMPAIGN, started, "round.start", str(n), round=n)
        for slot, kind, ratio, half, reason, hypothesis, ago in attempts:
            number += 1
            at, id = now - 60 * ago, candidate_id(n, slot)
            state = {"keep": "kept", "ask": "waiting"}.get(kind, "closed")
            verdict = verdict_of(ratio, half, reason)
            journal.put(Candidate(
                campaign=CAMPAIGN, id=id, round=n, slot=slot,
                base_commit=("c" if kind == "ask" else "b") * 40,
                base_tree="t" * 40, patch_path=f"patches/{digest}.patch", patch_sha256=digest,
                hypothesis=hypothesis, bottleneck="scalar-reduction", created_at=at - 40,
                state=msgspec.convert(state, str), reason=reason,
                commit={"keep": "c", "ask": "e"}.get(kind, "") * 40))  # type: ignore[arg-type]
            journal.put(VerdictRow(
                id=number, campaign=CAMPAIGN, candidate=id, purpose="candidate",
                incumbent_tree="t" * 40, harness_version="1", valid=verdict.valid,
                correct=verdict.correct, latency_us=verdict.latency_us, speedup=verdict.speedup,
                low=verdict.speedup_low, high=verdict.speedup_high,
                body=msgspec.json.encode(verdict), at=at - 5))
            journal.put(DecisionRow(
                id=number, campaign=CAMPAIGN, candidate=id, verdict=number, round=n,
                kind=kind, reason=reason, actor="judge",  # type: ignore[arg-type]
                commit="c" * 40 if kind == "keep" else "", at=at))
            journal.event(CAMPAIGN, at - 5, "verdict", id, candidate=id, slot=slot,
                          valid=verdict.valid, correct=verdict.correct, speedup=verdict.speedup,
                          low=verdict.speedup_low, high=verdict.speedup_high,
                          reason=verdict.rejected_reason or "")
            journal.event(CAMPAIGN, at, "decision", id, candidate=id, slot=slot, kind=kind,
                          reason=reason, actor="judge")
        if ended:
            journal.event(CAMPAIGN, now - 60 * attempts[-1][-1], "round.end", str(n), round=n,
                          outcome="keep", best_speedup=(1.81, 3.12)[n - 1])


def _now_running(journal: Journal, now: float) -> None:
    for slot, kind, backend, stage, detail, progress, hypothesis, candidate in (
            ("search", "planned", "search", "closed", "3% slower", 1.0, LONG,
             candidate_id(3, "search")),
            ("plan-1", "planned", "search", "waiting", "for approval", None,
             "fuse both passes over a row that fits into L1", candidate_id(3, "plan-1")),
            ("rewrite", "rewrite", "rewrite-template", "measuring", "pair 3 of 6, tall", 0.5,
             "blocked form with 8 row accumulators", candidate_id(3, "rewrite")),
            ("fixed", "fixed", "search", "searching", "trial 13 of 24, best 1.07x", 0.54,
             "LANES in 4..32, restrict pointers", "")):
        journal.put(Slot(campaign=CAMPAIGN, round=3, slot=slot, backend=backend, stage=stage,
                         kind=msgspec.convert(kind, str), detail=detail,  # type: ignore[arg-type]
                         hypothesis=hypothesis, bottleneck="scalar-reduction", device="cpu",
                         progress=progress, candidate=candidate, started_at=now - 300,
                         updated_at=now - 3))
    journal.put(
        Bottleneck(campaign=CAMPAIGN, round=2, rank=1, id="scalar-reduction", kernel="rmsnorm",
                   config_class="tall", limiter="not vectorised", metric="share of peak flops",
                   value=0.08, detail="loop at rmsnorm.c:17 keeps one sum",
                   advice="split the sum over as many accumulators as a vector has lanes"),
        Bottleneck(campaign=CAMPAIGN, round=2, rank=2, id="bandwidth", kernel="rmsnorm",
                   config_class="square", limiter="memory", metric="share of copy bandwidth",
                   value=0.61, detail="x is read twice", advice="keep a row in registers or L1"),
        Bottleneck(campaign=CAMPAIGN, round=2, rank=3, id="tail", kernel="rmsnorm",
                   config_class="odd", limiter="remainder loop", metric="share of time",
                   value=0.19, detail="cols is not a multiple of 8", advice="mask the last vector"))
    journal.event(CAMPAIGN, now - 60, "warning", message="the candidate printed " + HOSTILE)
    journal.event(CAMPAIGN, now - 30, "gate", device="cpu", message="idle, lock taken")


def own(workspace: Path, lease: Lease) -> None:
    """Record the lease of the engine that works on the campaign."""
    journal = Journal(workspace)
    journal.put(lease)
    journal.close()

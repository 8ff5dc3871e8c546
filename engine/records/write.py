"""The campaign's files for people: results, logs, snapshots, the table of kept gains.

They are written from what the journal knows and are never read back.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.campaign import Setup
from engine.candidates import Entry
from engine.journal.records import Round
from engine.judge import describe_rows, describe_speedup
from engine.keeper import Judged
from engine.workers.base import Task
from harness.loop import Trial
from harness.text import plain
from harness.verdict import Verdict

RESULT_COLUMNS = ("experiment", "tag", "loop", "model", "gpu", "regime", "correctness",
                  "latency_us", "pct_of_roofline", "schedule_id", "kernel_id", "description")
PERFORMANCE_HEAD = """# {campaign}

Only the baseline and kept gains are listed here; every attempt is in `kopt report`.

| date | commit | status | target | latency | against the last best | why |
|---|---|---|---|---|---|---|
"""


class Records:
    """Writes one campaign's files; every method may be called again for the same round."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.folder = setup.folder

    def start(self) -> None:
        """Make the files that a campaign begins with."""
        if not self.folder.results.exists():
            self.folder.results.write_text("\t".join(RESULT_COLUMNS) + "\n")
        if not self.folder.performance.exists():
            self.folder.performance.write_text(PERFORMANCE_HEAD.format(campaign=self.setup.id))
        if not self.folder.trend.exists():
            self.folder.trend.write_text(f"# {self.setup.id}\n\n| round | outcome | best | "
                                         "summary |\n|---|---|---|---|\n")

    def trials(self, round: int, task: Task, trials: Sequence[Trial]) -> None:
        """Append a search's trials to results.tsv."""
        with self.folder.results.open("a") as file:
            for trial in trials:
                config = json.dumps(trial.config, sort_keys=True)
                identity = "sch_" + hashlib.sha1(config.encode()).hexdigest()[:10]
                row = (f"{round}.{task.slot}.{trial.number}", "kept" if trial.kept else "tried",
                       "2", self.setup.target.op, self.setup.device.name, "screening",
                       "PASS" if trial.correct else "FAIL",
                       "" if trial.latency_us is None else f"{trial.latency_us:.4f}", "",
                       identity, task.slot, f"{config} {trial.reason}".strip())
                file.write("\t".join(plain(c, 300).replace("\t", " ").replace("\n", " ")
                                     for c in row) + "\n")

    def candidate(self, round: int, entry: Entry) -> None:
        """Store a candidate's patch beside its round."""
        folder = self.folder.round(round) / "candidates" / entry.candidate.slot
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{entry.id}.patch").write_bytes(entry.patch.data)

    def verdict(self, round: int, judged: Judged) -> None:
        folder = self.folder.round(round) / "candidates" / judged.entry.candidate.slot
        folder.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(judged.verdict), indent=1)
        (folder / f"{judged.entry.id}.verdict.json").write_bytes(text)

    def baseline(self, verdict: Verdict) -> None:
        self._performance("baseline", self.setup.lineage.base, verdict, "unmodified code", "")

    def kept(self, commit: str, verdict: Verdict, why: str) -> None:
        self._performance("keep", commit, verdict, why, describe_speedup(verdict))

    def round(self, round: Round, best: str) -> None:
        """Write the round's summary, its snapshot of the best kernel, and the log's lines."""
        folder = self.folder.round(round.n)
        snapshot = folder / "kernel_snapshot" / Path(self.setup.target.source).name
        source = self.setup.tree(self.setup.lineage.best) / self.setup.target.source
        shutil.copyfile(source, snapshot)
        text = (f"# Round {round.n}\n\n- scope: {round.scope}\n- incumbent: {round.incumbent}\n"
                f"- outcome: {round.outcome}\n- best so far: {best}\n\n{plain(round.summary)}\n")
        (folder / "summary.md").write_text(text)
        self.log(f"## Round {round.n}: {round.outcome}\n\n{plain(round.summary)}; best {best}\n")
        with self.folder.trend.open("a") as file:
            file.write(f"| {round.n} | {round.outcome} | {best} | {_cell(round.summary)} |\n")

    def stop(self, reason: str, best: str, waiting: int) -> None:
        """Append the Stop Summary."""
        text = (f"\n## Stop Summary\n\n- time: {_now()}\n- reason: {plain(reason)}\n"
                f"- best commit: {self.setup.lineage.best}\n- best against baseline: {best}\n"
                f"- candidates waiting for a person: {waiting}\n")
        with self.folder.performance.open("a") as file:
            file.write(text)
        self.log(text)

    def log(self, text: str) -> None:
        with self.folder.log.open("a") as file:
            file.write(f"{text.rstrip()}\n\n")

    def _performance(self, status: str, commit: str, verdict: Verdict, why: str,
                     change: str) -> None:
        latency = "" if verdict.latency_us is None else f"{verdict.latency_us:.3f} us"
        cells = (_now(), commit[:12], status, describe_rows(verdict.rows), latency, change, why)
        with self.folder.performance.open("a") as file:
            file.write("| " + " | ".join(_cell(cell) for cell in cells) + " |\n")


def _cell(text: str) -> str:
    return plain(text, 300).replace("|", "/").replace("\n", " ")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M")

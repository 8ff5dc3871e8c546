"""The campaign's files for people: results, logs, snapshots, the table of kept gains.

They are written from what the journal knows and are never read back.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.campaign import Setup
from engine.candidates import Entry
from engine.journal.read import Reader
from engine.journal.records import Round, VerdictRow
from engine.judge import describe_rows, describe_speedup
from engine.keeper import Judged
from engine.workers.base import LOG, Task
from harness import results
from harness.text import plain
from harness.trials import Trial
from harness.verdict import Verdict

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
            self.folder.results.write_text(results.HEAD)
        if not self.folder.performance.exists():
            self.folder.performance.write_text(PERFORMANCE_HEAD.format(campaign=self.setup.id))
        if not self.folder.trend.exists():
            self.folder.trend.write_text(f"# {self.setup.id}\n\n| round | outcome | best | "
                                         "summary |\n|---|---|---|---|\n")

    def trials(self, round: int, task: Task, trials: Sequence[Trial]) -> None:
        """Append a search's trials to results.tsv."""
        results.append(self.folder.results, [
            results.row(trial, model=self.setup.target.op, gpu=self.setup.device.name,
                        experiment=f"{round}.{task.slot}.{trial.number}") for trial in trials])

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

    def worker_log(self, round: int, slot: str) -> None:
        """Put what a slot's worker left to tell beside its candidates."""
        path = self.folder.path / "scratch" / slot / LOG
        if path.is_file() and not path.is_symlink():
            folder = self.folder.round(round) / "candidates" / slot
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / LOG)

    def agree(self, reader: Reader) -> None:
        """Write what the journal knows and the files do not say: gains, baseline, rounds.

        Called after every keep, and by an engine that takes over from one that was killed.
        """
        told = self.folder.performance.read_text()
        verdicts = {row.id: row for row in reader.verdicts(self.setup.id)}
        for row in verdicts.values():
            if row.purpose == "baseline" and f"| {self.setup.lineage.base[:12]} |" not in told:
                self._performance(row.at, "baseline", self.setup.lineage.base, _body(row),
                                  "unmodified code", "")
        for decision in reversed(reader.decisions(self.setup.id)):
            kept = decision.kind == "keep" and f"| {decision.commit[:12]} |" not in told
            measured = verdicts.get(decision.verdict or 0)
            if kept and measured is not None:
                verdict = _body(measured)
                message = self.setup.lineage.message(decision.commit).splitlines()[0]
                self._performance(decision.at, "keep", decision.commit, verdict, message,
                                  describe_speedup(verdict))
        for round in reader.rounds(self.setup.id):
            if round.ended_at is not None and not self._summary(round.n).exists():
                best = round.best_speedup
                self.round(round, f"{best:.2f}x" if best else "1.00x")

    def round(self, round: Round, best: str) -> None:
        """Write the round's summary, its snapshot of the best kernel, and the log's lines."""
        folder = self.folder.round(round.n)
        snapshot = folder / "kernel_snapshot" / Path(self.setup.target.source).name
        source = self.setup.tree(self.setup.lineage.best) / self.setup.target.source
        shutil.copyfile(source, snapshot)
        text = (f"# Round {round.n}\n\n- scope: {round.scope}\n- incumbent: {round.incumbent}\n"
                f"- outcome: {round.outcome}\n- best so far: {best}\n\n{plain(round.summary)}\n")
        self.log(f"## Round {round.n}: {round.outcome}\n\n{plain(round.summary)}; best {best}\n")
        with self.folder.trend.open("a") as file:
            file.write(f"| {round.n} | {round.outcome} | {best} | {_cell(round.summary)} |\n")
        self._summary(round.n).write_text(text)  # last: it tells that all is written

    def _summary(self, n: int) -> Path:
        return self.folder.rounds / f"round-{n}" / "summary.md"

    def stop(self, reason: str, best: str, waiting: int) -> None:
        """Append the Stop Summary."""
        text = (f"\n## Stop Summary\n\n- time: {_stamp(time.time())}\n- reason: {plain(reason)}\n"
                f"- best commit: {self.setup.lineage.best}\n- best against baseline: {best}\n"
                f"- candidates waiting for a person: {waiting}\n")
        with self.folder.performance.open("a") as file:
            file.write(text)
        self.log(text)

    def log(self, text: str) -> None:
        with self.folder.log.open("a") as file:
            file.write(f"{text.rstrip()}\n\n")

    def _performance(self, at: float, status: str, commit: str, verdict: Verdict, why: str,
                     change: str) -> None:
        latency = "" if verdict.latency_us is None else f"{verdict.latency_us:.3f} us"
        cells = (_stamp(at), commit[:12], status, describe_rows(verdict.rows), latency, change, why)
        with self.folder.performance.open("a") as file:
            file.write("| " + " | ".join(_cell(cell) for cell in cells) + " |\n")


def _cell(text: str) -> str:
    return plain(text, 300).replace("|", "/").replace("\n", " ")


def _body(row: VerdictRow) -> Verdict:
    return msgspec.json.decode(row.body, type=Verdict)


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))

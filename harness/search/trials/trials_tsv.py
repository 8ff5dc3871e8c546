"""results.tsv: every trial of a search in one row, for people and for spreadsheets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from harness.formats import jsonl
from harness.formats.text import plain
from harness.search.trials.trials import Trial

COLUMNS = ("experiment", "tag", "loop", "model", "gpu", "regime", "correctness", "latency_us",
           "pct_of_roofline", "schedule_id", "kernel_id", "description")
HEAD = "\t".join(COLUMNS) + "\n"
LOOP, REGIME = "knobs", "screening"
CELL = 300


def row(trial: Trial, *, model: str, gpu: str, experiment: str = "") -> tuple[str, ...]:
    """Return a trial's cells; latencies are microseconds, unknown values are empty."""
    config = json.dumps(trial.config, sort_keys=True, ensure_ascii=False)
    kind = f"; {trial.latency_kind}" if trial.latency_kind else ""
    reason = f"; {trial.reason}" if trial.reason else ""
    return (experiment or str(trial.number), trial.tag, LOOP, model, gpu, REGIME,
            trial.correctness, number(trial.latency_us, 4), number(trial.pct_of_roofline, 2),
            trial.candidate_id, trial.kernel_id, f"{config}{kind}{reason}")


def append(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    """Append rows, to a new file after the head; safe for several processes. Raises OSError."""
    jsonl.append(path, text(rows).encode(errors="replace"), head=HEAD.encode())


def text(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows in the file's format, without the head."""
    return "".join("\t".join(re.sub(r"[\t\n]", " ", plain(cell, CELL)) for cell in cells) + "\n"
                   for cells in rows)


def experiments(path: Path) -> set[str]:
    """Return the names of a file's rows, without torn ones. Raises OSError."""
    split = (line.decode(errors="replace").split("\t") for line in jsonl.read(path))
    return {cells[0] for cells in split if len(cells) == len(COLUMNS)} - {COLUMNS[0]}


def number(value: float | None, places: int) -> str:
    """Return a number as a cell, empty for None."""
    return "" if value is None else f"{value:.{places}f}"

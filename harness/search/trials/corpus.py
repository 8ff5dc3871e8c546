"""The corpus: every trial that loops measured in a workspace, also failures, one JSON line each.

It advises later searches, and decides nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.devices.device import Device
from harness.formats import jsonl
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.search.space.knobs import Knob
from harness.search.space.tunable_source import Observation, Space
from harness.search.trials.trials import Trial
from harness.tasks.target import Target
from harness.verdict import HARNESS_VERSION, Config, Correctness, LatencyKind, Value

FILE = "corpus.jsonl"
"""The file's name in a workspace."""
SCHEMA = 1
LATEST = 2_000
"""Of one op, at most this many lines are read, the newest."""


@dataclass(frozen=True, kw_only=True)
class RecordedClass:
    """A measured config class; `dtypes` are the arguments', in call order."""

    name: str
    shape: dict[str, int]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measured trial. `config` holds every knob of the source, also fixed ones.

    `latency_us` is None for a failure or a withheld latency, with a `reason`; `log_ratio` is
    against the source that the loop started from; `at` is UTC.
    """

    op: str
    language: str
    kernel: str
    knobs: dict[str, tuple[Value, ...]]
    config: Config
    device: str
    arch: str
    classes: tuple[RecordedClass, ...]
    correctness: Correctness
    kept: bool
    candidate_id: str
    at: str
    latency_us: float | None = None
    latency_kind: LatencyKind | None = None
    log_ratio: float | None = None
    reason: str = ""
    harness_version: str = HARNESS_VERSION
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.latency_us is not None and not 0 < self.latency_us < math.inf:
            raise ValueError("a latency is a positive number")

    @property
    def source(self) -> str:
        """Return the name of the recording within which latencies are comparable."""
        content = to_json([self.kernel, self.classes])
        return f"{self.device} {hashlib.sha256(content).hexdigest()[:8]}"


@dataclass(frozen=True)
class CorpusReading:
    """The records of a corpus; `skipped` counts invalid lines."""

    records: tuple[Record, ...]
    skipped: int = 0


def is_worth_recording(trial: Trial) -> bool:
    """Return whether a trial carries information: it was measured, or it failed."""
    return not trial.correct or trial.withheld or trial.log_ratio is not None


def record_of(trial: Trial, target: Target, device: Device, knobs: Sequence[Knob]) -> Record:
    """Return a trial as a record of the corpus."""
    dtypes = tuple(arg.dtype for arg in target.args)
    return Record(
        op=target.op, language=target.language, kernel=trial.kernel_id,
        knobs={knob.name: knob.choices for knob in knobs},
        config={knob.name: trial.config.get(knob.name, knob.value) for knob in knobs},
        device=device.name, arch=device.arch, correctness=trial.correctness, kept=trial.kept,
        classes=tuple(RecordedClass(name=c.name, shape=c.shape, dtypes=dtypes)
                      for c in target.classes),
        candidate_id=trial.candidate_id, at=trial.at, latency_us=trial.latency_us,
        latency_kind=trial.latency_kind, log_ratio=trial.log_ratio, reason=trial.reason)


def append(path: Path, record: Record) -> None:
    """Append a record in one write. Raises OSError."""
    jsonl.append(path, to_json(record) + b"\n")


def size(path: Path) -> int:
    """Return the size of a corpus in bytes; 0 where it does not exist or cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read(path: Path, *, op: str | None = None, end: int | None = None) -> CorpusReading:
    """Return the records in the first `end` bytes; for an `op`, its newest. Raises OSError."""
    pattern = b"" if op is None else to_json({"op": op})[1:-1]
    lines: deque[bytes] = deque(maxlen=None if op is None else LATEST)
    skipped = 0
    for line in jsonl.read(path, end):
        if not line:
            continue
        if not line.endswith(b"}"):
            skipped += 1
        elif pattern in line:
            lines.append(line)
    records = []
    for line in lines:
        try:
            records.append(from_json(line, Record))
        except ConvertError:
            skipped += 1
    return CorpusReading(tuple(records), skipped)


def matching(records: Iterable[Record], *, op: str, language: str, kernel: str,
             names: Iterable[str]) -> tuple[Record, ...]:
    """Return the records of this kernel, or if there are none, of its op with the same knobs."""
    knob_names = set(names)
    similar = [record for record in records if record.op == op and record.language == language
               and record.config.keys() == knob_names]
    return tuple(record for record in similar if record.kernel == kernel) or tuple(similar)


def history(records: Iterable[Record], space: Space, fixed: Mapping[str, Value],
            ) -> tuple[Observation, ...]:
    """Return records as advice for a space, without those outside it; `fixed` knobs must match."""
    observations = []
    for record in records:
        config = {name: record.config[name] for name in space.choices if name in record.config}
        if space.holds(config) and all(
                record.config.get(name) == value for name, value in fixed.items()):
            observations.append(Observation(source=record.source, config=config,
                                            latency_us=record.latency_us))
    return tuple(observations)

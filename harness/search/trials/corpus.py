"""The corpus: every trial that was ever measured in a workspace, one JSON line each.

Only a loop writes it, and only values that it measured itself; failures too, since a prior learns
from them. It is advice for searches and decides nothing.
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
from harness.search.space.knobs import Knob, Value
from harness.search.space.space import Config, Observation, Space
from harness.search.trials.trials import Correctness, Trial
from harness.target import Target
from harness.verdict import HARNESS_VERSION, LatencyKind

FILE = "corpus.jsonl"
"""Its name in a workspace."""
SCHEMA = 1
LATEST = 2_000
"""Lines of an op that are read, the newest."""


@dataclass(frozen=True, kw_only=True)
class RecordedClass:
    """A config class as it was measured; `dtypes` are those of the arguments in call order."""

    name: str
    shape: dict[str, int]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measured trial. `config` holds every knob of the source, also those that did not move.

    `latency_us` is None where it failed, or was not believed, as `reason` tells; `log_ratio` is
    against the source that its loop began with; `at` is UTC.
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
        """Name the recording within which latencies compare: a kernel, its classes, a device."""
        told = to_json([self.kernel, self.classes])
        return f"{self.device} {hashlib.sha256(told).hexdigest()[:8]}"


@dataclass(frozen=True)
class CorpusReading:
    """What a corpus says; `skipped` counts lines that cannot be understood."""

    records: tuple[Record, ...]
    skipped: int = 0


def worth(trial: Trial) -> bool:
    """Tell whether a trial says something: it was measured, or it failed."""
    return not trial.correct or trial.withheld or trial.log_ratio is not None


def record(trial: Trial, target: Target, device: Device, knobs: Sequence[Knob]) -> Record:
    """Return a trial as the corpus has it."""
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


def append(path: Path, one: Record) -> None:
    """Add a record, in one write. Raises OSError."""
    jsonl.append(path, to_json(one) + b"\n")


def size(path: Path) -> int:
    """Return how long a corpus is now, bytes; 0 where there is none or it cannot be asked."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read(path: Path, *, op: str | None = None, end: int | None = None) -> CorpusReading:
    """Return the records (of one op, the newest), up to an offset; content never makes it raise.

    Raises OSError for a file that cannot be read.
    """
    wanted = b"" if op is None else to_json({"op": op})[1:-1]
    found: deque[bytes] = deque(maxlen=None if op is None else LATEST)
    skipped = 0
    for line in jsonl.read(path, end):
        if not line:
            continue
        if not line.endswith(b"}"):
            skipped += 1
        elif wanted in line:
            found.append(line)
    records = []
    for line in found:
        try:
            records.append(from_json(line, Record))
        except ConvertError:
            skipped += 1
    return CorpusReading(tuple(records), skipped)


def matching(records: Iterable[Record], *, op: str, language: str, kernel: str,
             names: Iterable[str]) -> tuple[Record, ...]:
    """Return the records of a kernel: the very same, or those of its op with the same knobs."""
    wanted = set(names)
    alike = [one for one in records if one.op == op and one.language == language
             and one.config.keys() == wanted]
    return tuple(one for one in alike if one.kernel == kernel) or tuple(alike)


def history(records: Iterable[Record], space: Space, still: Mapping[str, Value],
            ) -> tuple[Observation, ...]:
    """Return records as advice for a space, less those off it; `still` are knobs not moved."""
    seen = []
    for one in records:
        config = {name: one.config[name] for name in space.choices if name in one.config}
        if len(config) < len(space.choices) or any(
                value not in space.choices[name] for name, value in config.items()):
            continue
        if all(one.config.get(name) == value for name, value in still.items()):
            seen.append(Observation(source=one.source, config=config, latency_us=one.latency_us))
    return tuple(seen)

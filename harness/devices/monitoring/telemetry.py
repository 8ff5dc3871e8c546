"""Samples a card during a measurement, and says which timed blocks its state voids.

A thread samples the card throughout. A timed block is judged by the samples in its window and the
nearest ones before and after it, since it is shorter than the interval between two samples.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from harness.devices.device import SLOWDOWNS
from harness.devices.monitoring.tenants import CardProcesses, ProcessClassifier
from harness.devices.nvidia import REASONS
from harness.formats.text import plain
from harness.verdict import Evidence

INTERVAL_S = 0.05
PATIENCE_S = 0.2
"""How long a block waits for the sample after it, and `__exit__` for the sample in progress."""
KEPT = 100_000
SLOW_S = 30.0
"""How long `catch_up` waits for a source whose samples take long."""
WORDS = {"hw-slowdown": "hardware slowdown", "sw-thermal": "software thermal slowdown",
         "hw-thermal": "hardware thermal slowdown", "hw-power-brake": "hardware power brake"}
_BITS = {name: bit for bit, name in REASONS.items()}
IDLE, CAPPED = _BITS["idle"], _BITS["sw-power-cap"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A card at `at_ns` (perf_counter_ns, before the read); None marks values it does not report.

    `reasons` is NVML's bit mask of throttle reasons; `pids` have a compute context.
    """

    at_ns: int
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    reasons: int = 0
    pids: tuple[int, ...] | None = None


class SampleSource(Protocol):
    """Source of samples; its exceptions are counted and reported."""

    def sample(self) -> Sample: ...


@dataclass(frozen=True)
class ReadingRange:
    """Minimum, median and maximum of some readings."""

    low: int
    median: int
    high: int


@dataclass(frozen=True, kw_only=True)
class CardHealth:
    """A card over a window; `foreign` are pids, 0 for a process without one in this namespace.

    `unavailable` says why some reads failed, `unavailable_foreign` why a foreign process might be
    missed; neither voids a block.
    """

    samples: int = 0
    sm_mhz: ReadingRange | None = None
    memory_mhz: ReadingRange | None = None
    temperature_c: ReadingRange | None = None
    power_w: float | None = None
    slowdown: tuple[str, ...] = ()
    slowed_share: float = 0.0
    capped_share: float = 0.0
    foreign: tuple[int, ...] = ()
    unavailable: str = ""
    unavailable_foreign: str = ""


def slowdowns(reasons: int) -> tuple[str, ...]:
    """Return the names of those throttle reasons in a mask that void a measurement."""
    return tuple(WORDS[name] for bit, name in REASONS.items()
                 if reasons & bit and name in SLOWDOWNS)


def around(at: Sequence[int], begin_ns: int, end_ns: int) -> range:
    """Return the indices of sorted times in a window, and of the nearest before and after it."""
    first, last = bisect_left(at, begin_ns) - 1, bisect_right(at, end_ns)
    return range(max(first, 0), min(last, len(at) - 1) + 1)


class TelemetryWatch:
    """Samples a card in a thread of its own while the `with` block lasts.

    At most `runners` of our processes are on the card. With a slow source (`prompt` False)
    `between` does not wait for a sample after the window; call `catch_up`.
    """

    def __init__(self, source: SampleSource, *, runners: int, interval_s: float = INTERVAL_S,
                 prompt: bool = True) -> None:
        self._source, self._interval_s, self.prompt = source, interval_s, prompt
        self._classifier = ProcessClassifier(runners)
        self._at: list[int] = []
        self._seen: list[tuple[Sample, CardProcesses]] = []
        self._failures, self._failure = 0, ""
        self._tried_ns = 0
        self._hanging = False
        self._sampled = threading.Condition()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopt-health", daemon=True)

    def __enter__(self) -> TelemetryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join(PATIENCE_S)  # abandons a driver that hangs

    def between(self, begin_ns: int, end_ns: int) -> CardHealth:
        """Return the card's health in a window that has ended, including a sample after its end."""
        if self.prompt:
            self._await(end_ns, PATIENCE_S)
        return self.over([(begin_ns, end_ns)])

    def over(self, windows: Iterable[tuple[int, int]]) -> CardHealth:
        """Return the card's health over several windows, from the samples taken so far."""
        with self._sampled:
            chosen = sorted({index for window in windows for index in around(self._at, *window)})
            seen = [self._seen[index] for index in chosen]
            foreign, doubt = self._classifier.foreign(processes for _, processes in seen)
            return _health([sample for sample, _ in seen], foreign, doubt, self._unavailable())

    def catch_up(self) -> None:
        """Wait for a sample that starts from now on, for at most `SLOW_S`."""
        self._await(time.perf_counter_ns(), SLOW_S)

    def _await(self, end_ns: int, patience_s: float) -> None:
        """Wait for a sample started after `end_ns`; for a driver that hangs, wait only once."""
        with self._sampled:
            if self._tried_ns >= end_ns or self._closing.is_set() or not self._thread.is_alive():
                return
            self._wake.set()
            if self._hanging:
                return
            if not self._sampled.wait_for(lambda: self._tried_ns >= end_ns, patience_s):
                self._hanging = True

    def _unavailable(self) -> str:
        if self._hanging:
            return f"the driver has not answered for {PATIENCE_S if self.prompt else SLOW_S:g} s"
        if not self._failures:
            return "" if self._seen else "no sample was taken"
        return f"{self._failures} of {self._failures + len(self._seen)} samples failed: " \
               f"{self._failure}"

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            self._take()
            self._wake.wait(self._interval_s)

    def _take(self) -> None:
        started_ns, seen, failure = time.perf_counter_ns(), None, ""
        try:
            sample = self._source.sample()
            seen = (sample, self._classifier.classify(sample.pids))
        except Exception as error:  # no fault of a driver or its binding may stop the timing
            failure = plain(str(error), 200) or type(error).__name__
        with self._sampled:
            if seen is None:
                self._failures, self._failure = self._failures + 1, failure
            else:
                self._at.append(seen[0].at_ns)
                self._seen.append(seen)
                del self._at[:-KEPT], self._seen[:-KEPT]
            self._tried_ns, self._hanging = started_ns, False
            self._sampled.notify_all()


def evidence(health: CardHealth, voided: Mapping[str, int] | None = None) -> tuple[Evidence, ...]:
    """Return the evidence for a verdict; `voided` counts the repeated blocks by reason."""
    lines: list[Evidence] = []
    if readings := ", ".join(_readings(health)):
        lines.append(Evidence(kind="clocks", detail=readings))
    if health.unavailable:
        lines.append(Evidence(kind="clocks", detail=f"incomplete: {health.unavailable}"))
    if health.unavailable_foreign:
        lines.append(Evidence(kind="foreign", detail=health.unavailable_foreign))
    if voided and (total := sum(voided.values())):
        reasons = ", ".join(f"{count} for {why}" for why, count in sorted(voided.items()))
        blocks = "1 block" if total == 1 else f"{total} blocks"
        lines.append(Evidence(kind="voided", detail=f"{blocks} repeated: {reasons}"))
    return tuple(lines)


def _readings(health: CardHealth) -> Iterable[str]:
    for name, clock in (("SM", health.sm_mhz), ("memory", health.memory_mhz)):
        if clock is not None:
            spread = f" ({clock.low}-{clock.high})" if clock.low < clock.high else ""
            yield f"{name} {clock.median} MHz{spread}"
    if (temperature := health.temperature_c) is not None:
        yield f"{temperature.low}-{temperature.high} C" \
            if temperature.low < temperature.high else f"{temperature.low} C"
    if health.power_w is not None:
        yield f"up to {health.power_w:.0f} W"
    if health.capped_share > 0:  # the normal state under a large kernel
        share = f"{100 * health.capped_share:.0f}" if health.capped_share >= 0.01 else "under 1"
        yield f"software power cap in {share} % of the samples"


def _health(samples: Sequence[Sample], foreign: tuple[int, ...], doubt: str,
            unavailable: str) -> CardHealth:
    # the card idles between blocks: those clocks are not the clocks of the blocks
    busy = [sample for sample in samples if not sample.reasons & IDLE] or samples
    reasons = 0
    for sample in samples:
        reasons |= sample.reasons
    powers = [sample.power_w for sample in samples if sample.power_w is not None]
    capped = sum(bool(sample.reasons & CAPPED) for sample in busy)
    return CardHealth(
        samples=len(samples), sm_mhz=_range(sample.sm_mhz for sample in busy),
        memory_mhz=_range(sample.memory_mhz for sample in busy),
        temperature_c=_range(sample.temperature_c for sample in samples),
        power_w=max(powers, default=None), slowdown=slowdowns(reasons),
        slowed_share=sum(bool(slowdowns(sample.reasons)) for sample in samples)
        / max(len(samples), 1),
        capped_share=capped / len(busy) if busy else 0.0, foreign=foreign,
        unavailable=unavailable, unavailable_foreign=doubt if samples else "")


def _range(values: Iterable[int | None]) -> ReadingRange | None:
    known = [value for value in values if value is not None]
    return ReadingRange(min(known), round(median(known)), max(known)) if known else None

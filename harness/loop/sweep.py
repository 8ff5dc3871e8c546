"""The fastest of a list of configurations of one source: compiled side by side, then raced.

While the processor's cores compile, a few lanes take what is ready, run it and time its first
blocks, one lane at a time. What is far behind the fastest right one then leaves; the others race
on, block by block in turns, on a card that nothing else uses. Nobody loses to what has not been
shown to be right, and the winner is right; most of those that lost were never checked. Its verdict
is somebody else's.
"""

from __future__ import annotations

import math
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compile.c_compiler import BuildError
from harness.errors import Cancelled, InputError
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import PeerDied, PeerError
from harness.loop import racing
from harness.loop.screening import Screening
from harness.loop.trial_process import Entry, Lane
from harness.search.space import knobs
from harness.search.space.space import Config
from harness.timing.paired_blocks import TamperedTiming
from harness.timing.plan import SCREEN
from harness.timing.quick_timing import BLOCKS

LANES = 5


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Where a sweep ended: the winner, None when nothing works, and all entries, as they stand.

    `spent` are seconds from its beginning to the end of a phase.
    """

    winner: Config | None
    entries: tuple[Entry, ...]
    spent: dict[str, float]


class Sweep:
    """Sweeps a list on an entered screen, which must be one that compiles ahead."""

    def __init__(self, screen: Screening, *, lanes: int = LANES,
                 on_entry: Callable[[Entry], None] | None = None) -> None:
        if screen.ahead is None:
            raise InputError("a sweep needs a Triton kernel and a card whose architecture is known")
        self.screen, self.stage, self.ahead = screen, screen.stage, screen.ahead
        self._lanes = 1 if screen.stage.in_process else lanes
        self._on_entry = on_entry or (lambda entry: None)
        self._ready: queue.Queue[Entry | None] = queue.Queue()
        self._card, self._state = threading.Lock(), threading.Lock()
        self._failure: BaseException | None = None
        self._held: DeviceLock | None = None

    def run(self, configs: Sequence[Config]) -> Swept:
        """Find the fastest. Raises Cancelled, and what faults of machine and reference raise."""
        began = time.monotonic()
        spent: dict[str, float] = {}
        entries = [self._entry(number, config) for number, config in enumerate(configs)]
        going = [entry for entry in entries if entry.correctness is None]
        plan, limits = self.stage.fitted(SCREEN), self.stage.runners.limits
        with self.stage.working() as self._held, self.screen.budget:
            plan = replace(plan, cache_bytes=0)  # one copy: those far behind are far behind
            lanes = [Lane(self.stage, f"lane-{number}", self.ahead, self.screen.cases, plan,
                          limits, self._held, self._lanes) for number in range(self._lanes)]
            try:
                self._first_blocks(lanes, going, lambda phase: spent.__setitem__(
                    phase, time.monotonic() - began))
                winner, why = racing.run([entry.number for entry in self._left(going)],
                                         lambda number: self._block(entries[number]),
                                         lambda number: self._right(entries[number]))
                spent["raced"] = time.monotonic() - began
            finally:
                for lane in lanes:
                    lane.close()
        for number, reason in why.items():
            entries[number].reason = entries[number].reason or reason
        return Swept(winner=None if winner is None else entries[winner].config,
                     entries=tuple(entries), spent=spent)

    def _entry(self, number: int, config: Config) -> Entry:
        entry = Entry(number=number, config=config)
        checked = knobs.check(self.screen.knobs, config)
        if checked.faults or checked.dropped:
            entry.fail("REJECTED", "; ".join((*checked.faults, *checked.dropped)))
            return entry
        source = self.screen.source_of(checked.config)
        entry.key = self.ahead.expect(source)
        entry.tree = Path(self.stage.folder("sweep")) / entry.key
        shutil.copytree(self.screen.job.tree, entry.tree, symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns(".git"))
        (entry.tree / self.stage.target.source).write_bytes(source.encode())
        return entry

    def _first_blocks(self, lanes: list[Lane], going: list[Entry],
                      ended: Callable[[str], None]) -> None:
        """Hand out what is compiled, as it is, to whichever lane is free."""
        threads = [threading.Thread(target=self._work, args=(lane,)) for lane in lanes]
        missing = set(entry.number for entry in going)

        def compiled(entry: Entry) -> None:
            self._ready.put(entry)
            with self._state:
                missing.discard(entry.number)
                last = not missing
            if last:
                ended("compiled")
                for _ in threads:
                    self._ready.put(None)

        for thread in threads:
            thread.start()
        for entry in going:
            self.ahead.future(entry.key).add_done_callback(
                lambda _, entry=entry: compiled(entry))  # type: ignore[misc]
        for _ in threads if not going else ():
            self._ready.put(None)
        for thread in threads:
            thread.join()
        ended("first blocks")
        if self._failure is not None:
            raise self._failure

    def _work(self, lane: Lane) -> None:
        while (entry := self._ready.get()) is not None:
            try:
                if self._failure is None:
                    self._first(lane, entry)
                    self._on_entry(entry)
            except BaseException as error:  # no candidate's: the sweep ends, whoever waits for it
                self._failure = error

    def _first(self, lane: Lane, entry: Entry) -> None:
        if reasons := self.ahead.get(entry.key).reasons:
            entry.fail("REJECTED", f"cannot be launched: {'; '.join(reasons)}")
            return
        try:
            lane.begin(entry)
            with self._card:
                lane.warm(entry)
                entry.first_us = min(lane.block(entry) for _ in range(BLOCKS)) / 1e3
        except (BuildError, TamperedTiming) as error:
            entry.fail("REJECTED", error.what)
        except (PeerError, PeerDied) as error:
            lane.broken(entry, error)

    def _left(self, going: list[Entry]) -> list[Entry]:
        """Return who goes on to the heats, the fastest first: who is not far behind the fastest
        that is right. A check takes longer than a configuration's first blocks.
        """
        found = sorted((entry for entry in going if entry.first_us), key=_first_us)
        best = next((entry for entry in found if self._right(entry)), None)
        if best is None:
            return []
        for entry in found:
            if not entry.reason and racing.lost(_first_us(entry), _first_us(best)):
                entry.reason = (f"{_first_us(entry) / _first_us(best):.3g} times slower in its "
                                "first blocks")
        return [entry for entry in found if not entry.reason]

    def _block(self, entry: Entry) -> float:
        if self.stage.cancel is not None and self.stage.cancel.is_set():
            raise Cancelled("stopped while racing")
        assert entry.lane is not None
        try:
            entry.lane.again(entry)
            return entry.lane.block(entry)
        except TamperedTiming as error:
            entry.fail("REJECTED", error.what)
        except (PeerError, PeerDied) as error:
            entry.lane.broken(entry, error)
        return math.inf

    def _right(self, entry: Entry) -> bool:
        """Tell whether an entry is right on every class; asked once."""
        if entry.correctness is not None:
            return entry.correctness == "PASS"
        assert entry.lane is not None
        try:
            entry.lane.again(entry)
            assert entry.peer is not None and entry.kernel is not None
            for case in self.screen.cases:
                answer = entry.peer.ask("call", case=case.id, tensors=case.tensors)
                errors = self.screen.oracle.judge(case, answer.get("outputs"))
                judged = self.screen.budget.judge(case, errors, entry.kernel, self._held)
                if judged is None or not judged.right:
                    entry.fail("FAIL", f"wrong result on class {case.config_class}")
                    return False
        except (PeerError, PeerDied) as error:
            entry.lane.broken(entry, error)
            return False
        entry.correctness = "PASS"
        return True


def _first_us(entry: Entry) -> float:
    return entry.first_us or math.inf

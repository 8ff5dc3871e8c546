"""Screening: build, check and time one configuration after the other on one bench.

Triton for a card is compiled ahead of its run (`harness.compile.precompile`): what cannot be
launched is refused before it is, and whoever knows what comes next may say so by `expect`, so that
it compiles on the cores that a measurement leaves. What its first blocks show to be far behind is
not timed further. With `foresight` the same holds for a card that need not be here, whose latencies
are predicted where none is measured.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import TracebackType

from harness.case import Errors
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.compile.precompile import Ahead
from harness.correctness.tolerance import Tolerance
from harness.devices import architectures as archs
from harness.devices.device import Device
from harness.errors import InputError
from harness.evaluate import verdict_rows
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats import file_copy
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.loop.start_kernel import StartKernel
from harness.loop.trial_turns import TrialTurns, WrongResult
from harness.roofline import ceilings, measured_peaks, roofline
from harness.roofline.ceilings import Ceilings
from harness.roofline.predictor import Foresight
from harness.roofline.roofline import Roofline
from harness.runners.session import Session
from harness.search.space.space import Config
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import Screened, SearchJob, latency_kind
from harness.settings import Settings
from harness.target import Target
from harness.timing import stats
from harness.timing.paired_blocks import TamperedTiming
from harness.timing.paired_timing import ClassTiming, PairedTiming
from harness.timing.plan import SCREEN
from harness.timing.quick_timing import BestQuickTimes, QuickTimer
from harness.verdict import Verdict

MOST_EXPECTED = 100
"""Compiled sources that are kept for trials that may yet come."""
COMPILES_S = 2.0
"""So long a card is kept while a configuration compiles."""
CLEAR = 1.5
"""A trial this many times slower than the best in its first blocks is not timed further."""
MORE = 3
"""Runners of a side that are kept starting while a GPU is busy with the last ones."""


class Infeasible(Exception):
    """A trial that the device cannot launch."""


class Screening:
    """The bench of one loop: a stage, an oracle and its cases, shared by all trials.

    Raises InputError when the starting source does not compile.
    """

    def __init__(self, target: Target, job: SearchJob, device: Device, settings: Settings,
                 source: TunableSource, cancel: threading.Event | None = None,
                 zygote: Zygote | None = None, foresight: Foresight | None = None) -> None:
        self.job, self.cancel, self.foresight = job, cancel, foresight
        self.source = source
        self.stage = Session(target, device, settings, cancel, zygote)
        self.target = self.stage.target
        self.oracle = self.stage.oracle(Path(job.reference), None)
        self.budget = Tolerance(self.stage, self.oracle, Path(job.reference))
        self.ceilings: Ceilings | None = None
        self.roofline: Roofline | None = None
        self.ahead = self._compiles_ahead()
        self.leader = BestQuickTimes(self.target)
        self._expected: dict[str, None] = {}
        """What was compiled or is to be, the latest wanted last."""
        self.turns: TrialTurns | None = None
        self._start_key = ""
        self._left: Path | None = None

    def _compiles_ahead(self) -> Ahead | None:
        """Return what compiles configurations; an interpreter compiles none."""
        stage = self.stage
        if stage.on_cpu or self.target.language != "triton" \
                or archs.find(stage.device.arch) is None:
            return None
        return Ahead(self.target, Path(self.job.tree), stage.device.arch, stage.folder("ahead"),
                     python=stage.place.python, env=stage.place.env, zygote=stage.zygote,
                     cancel=self.cancel)

    def expect(self, configs: Iterable[Config]) -> None:
        """Have configurations compiled in the background, those first that will be asked for first.

        A loop calls it before each trial with what its strategy asks for and is likely to ask for
        next; of those after the first only as many begin as there are cores for. What is then never
        measured has cost some processor time and space in the scratch folder.
        May be called before the bench is entered, and does nothing where nothing is compiled.
        """
        ahead = self.ahead
        for number, config in enumerate(configs if ahead is not None else ()):
            text = self.source.configured(config)
            if ahead is None or text is None:
                continue
            if number and ahead.room <= 0:
                return
            key = ahead.expect(text)
            self._expected.pop(key, None)
            self._expected[key] = None
        while ahead is not None and len(self._expected) > MOST_EXPECTED:
            oldest = next(iter(self._expected))
            del self._expected[oldest]
            if oldest != self._start_key:
                ahead.forget(oldest)

    def __enter__(self) -> Screening:
        try:
            self._prepare()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        if self.turns is not None:
            self.turns.close()
        if self.ahead is not None:
            self.ahead.close()
        self.stage.close()
        self.oracle.close()

    def _prepare(self) -> None:
        file_copy.remove(Path(self.stage.settings.scratch) / "trial")  # of one that was killed
        with self.stage.working():
            self.cases = [self.oracle.make(c, "normal") for c in self.target.classes]
        try:
            self.incumbent = self.stage.make(Path(self.job.tree), "start")
        except BuildError as error:
            raise InputError(f"does not compile: {error.what}",
                             where=self.target.source) from None
        self.start = StartKernel(self.stage, self.incumbent, self.cases)
        self.turns = self._takes_turns()
        if self.turns is None:
            self.stage.runners.expect(self.incumbent, 1)
        if self.stage.measurable:
            self.ceilings = self._ceilings()
            device = self.stage.device
            peaks = None if self.stage.several else measured_peaks.cached(device)
            self.roofline = roofline.of_device(device, self.target, self.ceilings, peaks,
                                               cold=SCREEN.cache == "cold")

    def _takes_turns(self) -> TrialTurns | None:
        """Return the bench for trials in one process; none where a kernel would time itself there.
        """
        if self.ahead is None or self.stage.several or self.incumbent.tunes_itself:
            return None
        self._start_key = self.ahead.expect(self.source.text)
        return TrialTurns(self.stage, self.oracle, self.budget, self.ahead, self.cases,
                     self.stage.fitted(SCREEN), Path(self.job.tree), self._start_key)

    def _ceilings(self) -> Ceilings | None:
        with self.stage.lock() if self.stage.on_cpu else contextlib.nullcontext():
            return ceilings.of_device(self.stage.device, self.target,
                                      self.stage.folder("ceilings"))

    def measure(self, config: Config) -> Screened:
        """Screen one configuration: whatever is wrong with it is an answer.

        Raises Cancelled, and what faults of the machine and of the reference raise.
        """
        checked = self.source.check(config)
        if checked.refusal:
            return Screened(correctness="REJECTED", reason=checked.refusal)
        try:
            return self._measure(checked.config)
        except (BuildError, TamperedTiming, Infeasible) as error:
            return Screened(correctness="REJECTED", reason=str(error))
        except (PeerError, PeerDied, WrongResult) as error:
            return Screened(correctness="FAIL", reason=str(error))

    def _measure(self, config: Config) -> Screened:
        source = self.source.apply(config)
        told = self.foresight.of(source) if self.foresight is not None else None
        if told is not None and told.refusal:
            raise Infeasible(told.refusal)
        screened = self._tried(source)
        if told is None or told.latency_us is None or self.stage.measurable:
            return screened
        return replace(screened, latency_us=told.latency_us, latency_kind="predicted",
                       roofline_us=told.roofline_us,
                       pct_of_roofline=told.pct_of_roofline)

    def _tried(self, source: str) -> Screened:
        if self.turns is not None and self.ahead is not None:
            return self._in_turn(self.turns, self.ahead, source)
        tree = Path(self.stage.settings.scratch) / "trial"
        if not tree.exists():
            shutil.copytree(self.job.tree, tree, symlinks=True,
                            ignore=shutil.ignore_patterns(".git"))
        (tree / self.target.source).write_bytes(source.encode())
        if self.ahead is None:
            return self._run(self.stage.make(tree, "trial"))
        key = self.ahead.expect(source)
        candidate = self.stage.make(tree, f"trial-{key}")  # with a home of its own
        if self._left is not None and self._left != candidate.home:
            file_copy.remove(self._left)
        self._left = candidate.home
        try:
            self.stage.runners.expect(candidate, 2)  # while it compiles
            self._feasible(self.ahead, key)
            self.ahead.give(key, candidate)
            return self._run(candidate)
        finally:
            self.stage.runners.forget(candidate)
            self.ahead.forget(key)

    def _in_turn(self, turns: TrialTurns, ahead: Ahead, source: str) -> Screened:
        key = ahead.expect(source)
        try:
            if wait([ahead.future(key)], COMPILES_S).not_done:
                turns.close()  # others may have the card meanwhile
            self._feasible(ahead, key)
            try:
                return self._taken(turns, source, key)
            except WrongResult:
                if not turns.shared_before:
                    raise
                return self._taken(turns, source, key)  # on buffers that nobody else has had
        finally:
            if key != self._start_key:
                ahead.forget(key)

    def _taken(self, turns: TrialTurns, source: str, key: str) -> Screened:
        with turns.trial(source.encode(), key) as trial:
            first = trial.first()
            if (behind := self.leader.behind(first)) > math.log(CLEAR):
                return self._dropped(first, behind)
            timings = trial.beside()
            contends = self._ratio(timings) > self.leader.log_ratio - math.log1p(SCREEN.margin)
            if contends:
                trial.check()
        one = next(iter(trial.errors.values()))  # of the rest only the times are asked for
        screened = self._summed_up({name: trial.errors.get(name, one) for name in timings},
                                   timings)
        if contends:
            self.leader.take(screened.log_ratio, first)
            return screened
        return replace(screened, reason=screened.reason or (
            f"slower than the best: checked on class {', '.join(trial.errors)} alone"))

    def _feasible(self, ahead: Ahead, key: str) -> None:
        """Raise Infeasible for what this device cannot launch; what nobody can tell may run."""
        if reasons := ahead.get(key).reasons:
            raise Infeasible(f"cannot be launched: {'; '.join(reasons)}")

    def _run(self, candidate: Kernel) -> Screened:
        with self.stage.working() as held, self.start.beside(held):
            errors, first = self._check(candidate, held)
            if not self.stage.measurable:
                return Screened(correctness="PASS")
            if (behind := self.leader.behind(first)) > math.log(CLEAR):
                return self._dropped(first, behind)
            with self.stage.measuring(held) as owned:
                timings = self._time(candidate, owned)
        screened = self._summed_up(errors, timings)
        self.leader.take(screened.log_ratio, first)
        return screened

    def _check(self, candidate: Kernel, held: DeviceLock | None,
               ) -> tuple[dict[str, Errors], dict[str, float]]:
        """Return by class the errors, and the nanoseconds of first blocks where there are any."""
        found, first = {}, {}
        with self.stage.runners.start(candidate, lock=held, yields=self.stage.yields,
                                      refill=0 if self.ahead else MORE) as runner, self.budget:
            for case in self.cases:
                answer = runner.ask("call", case=case.id, tensors=case.tensors)
                errors = self.oracle.judge(case, answer.get("outputs"))
                judged = self.budget.judge(case, errors, candidate, held)
                if judged is None or not judged.right:
                    raise WrongResult(f"wrong result on class {case.config_class}")
                found[case.config_class] = judged
            for case in self.cases if self.ahead else ():
                timer = QuickTimer(runner, case, self.stage.fitted(SCREEN))
                first[case.config_class] = timer.first()
        return found, first

    def _dropped(self, first: dict[str, float], behind: float) -> Screened:
        """What a clear loser is told: its few blocks are all that is known of it."""
        return Screened(correctness="PASS", log_ratio=self.leader.log_ratio - behind,
                        latency_us=self.leader.latency_us(first),
                        latency_kind=latency_kind(self.stage.device, self.target.language),
                        reason=f"{math.exp(behind):.3g} times slower than the best in its first "
                               "blocks: not timed further")

    def _time(self, candidate: Kernel, held: DeviceLock) -> dict[str, ClassTiming]:
        sides = {"candidate": candidate, "incumbent": self.incumbent}

        def start(order: Sequence[str]) -> Sequence[Peer]:
            peers = self.stage.runners.start_all([sides[side] for side in order], lock=held,
                                                 refill=0 if self.ahead else MORE)
            if self.ahead:
                self.stage.runners.expect(self.incumbent, MORE)
            return peers

        timings = PairedTiming(self.stage.fitted(SCREEN), self.cases, start,
                        alone=self.stage.on_cpu and not self.stage.in_process,
                        quiet=any(side.tunes_itself for side in sides.values()),
                        end=None if self.stage.on_cpu else self.stage.runners.end,
                        cancel=self.cancel).run()
        return {timing.config_class: timing for timing in timings}

    def _ratio(self, timings: dict[str, ClassTiming]) -> float:
        classes = self.target.classes
        return stats.weighted_mean([median(timings[one.name].log_ratios) for one in classes],
                                   [one.weight for one in classes])

    def _summed_up(self, errors: dict[str, Errors],
                   timings: dict[str, ClassTiming]) -> Screened:
        """Sum up as a verdict does, with its guard against what is faster than anything can be."""
        seen = EvaluationResults(target=self.target, plan=SCREEN, errors=errors, timings=timings,
                                 ceilings=self.ceilings, roofline=self.roofline,
                                 on_cpu=self.stage.on_cpu, same=False)
        rows, found = verdict_rows.rows(seen)
        if found:
            return Screened(correctness="PASS", reason="; ".join(f"latency withheld: {f.detail}"
                                                                 for f in found))
        verdict = verdict_rows.with_overall(Verdict(valid=True, correct=True, rows=rows), seen)
        ratio = self._ratio(timings)
        assert verdict.latency_us is not None and math.isfinite(ratio)
        return Screened(correctness="PASS", log_ratio=ratio, latency_us=verdict.latency_us,
                        latency_kind=verdict.latency_kind, roofline_us=verdict.roofline_us,
                        pct_of_roofline=verdict.pct_of_roofline)

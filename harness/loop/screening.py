"""Screen configurations one after the other: build, check and time each of them briefly.

Triton kernels for a GPU are compiled ahead on cores that a measurement leaves idle. Such a kernel
that the GPU cannot launch never runs; one whose first blocks are far slower than the best is not
timed further. With `foresight`, latencies are predicted where this machine cannot measure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from harness.compile.c_compiler import BuildError
from harness.compile.device_code.build_ahead import BuildAhead
from harness.compile.kernel import imports_triton
from harness.compile.precompile import Precompiler
from harness.correctness.tolerance import Tolerance
from harness.devices import datasheets
from harness.devices.device import Device
from harness.errors import InputError
from harness.isolation.rpc import PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.loop.screen_methods import Infeasible, PairScreening, TurnScreening
from harness.loop.screen_summary import ScreenSummary
from harness.loop.trial_turns import WrongResult
from harness.roofline.predictor import SourcePredictor
from harness.runners.session import Session
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import Screened, SearchJob
from harness.settings import Settings
from harness.tasks.target import OF_CARD, Target
from harness.timing.timed_block import TamperedTiming
from harness.verdict import Config, Value

MOST_EXPECTED = 400
"""The maximum number of compiled sources that are kept for later trials."""


class Screening:
    """A loop's session and oracle. Entering raises InputError if the source does not compile.

    Creating one raises InputError if kernels of this language need another device.
    """

    def __init__(self, target: Target, job: SearchJob, device: Device, settings: Settings,
                 source: TunableSource, cancel: threading.Event | None = None,
                 zygote: Zygote | None = None, foresight: SourcePredictor | None = None,
                 on_wait: Callable[[str], None] | None = None) -> None:
        self.job, self.source, self.foresight = job, source, foresight
        python_imports_triton = imports_triton(target, job.tree)
        self.has_triton = python_imports_triton or target.language == "triton"
        self.session = Session(target, device, settings, cancel, zygote,
                               base=Path(job.reference), has_triton=python_imports_triton)
        if self.session.lacks:
            self.session.close()
            raise InputError(self.session.lacks, where="--device")
        self.session.on_wait = on_wait
        self.target = self.session.target
        self.oracle = self.session.oracle(Path(job.reference), None)
        self.triton_builds = self._compiler()
        self.device_builds = self._builder()
        self.summary = ScreenSummary(self.session)
        self.method: TurnScreening | PairScreening | None = None
        self._expected: dict[str, None] = {}
        """Keys of sources that are or will be compiled, the last expected one at the end."""
        self._texts: dict[tuple[tuple[str, Value], ...], str | None] = {}
        self._initial_key = ""

    def _compiler(self) -> Precompiler | None:
        """Return what compiles Triton ahead; None without Triton or a known GPU architecture."""
        session = self.session
        if session.on_cpu or not self.has_triton \
                or datasheets.find_arch(session.device.arch) is None:
            return None
        return Precompiler(self.target, Path(self.job.tree), session.device.arch, replace(
            session.place, device="cpu", scratch=str(session.folder("ahead"))))

    def _builder(self) -> BuildAhead | None:
        """Return what builds CUDA and HIP configurations ahead; None for other languages."""
        session = self.session
        if self.target.language not in OF_CARD:
            return None
        return BuildAhead(self.target, session.place, Path(self.job.tree), session.folder("ahead"))

    def expect(self, configs: Iterable[Config]) -> None:
        """Compile configurations in the background, in this order, while cores are free.

        Triton's first one is compiled in any case. Call this before each trial with its
        configuration and those planned after it.
        """
        ahead = self.triton_builds
        if self.device_builds is not None:
            for source in filter(None, map(self.source.configured, configs)):
                if self.device_builds.room <= 0:
                    return
                self.device_builds.expect(source)
        if ahead is None:
            return
        for number, config in enumerate(configs):
            text = self._configured(config)
            if text is None:
                continue
            if number and ahead.room <= 0:
                return
            key = ahead.expect(text)
            self._expected.pop(key, None)
            self._expected[key] = None
        while len(self._expected) > MOST_EXPECTED:
            oldest = next(iter(self._expected))
            del self._expected[oldest]
            if oldest != self._initial_key:
                ahead.forget(oldest)

    def _configured(self, config: Config) -> str | None:
        """Return the source with a configuration; cached, as each trial asks for planned ones."""
        name = tuple(config.items())
        if name not in self._texts:
            self._texts[name] = self.source.configured(config)
        return self._texts[name]

    def __enter__(self) -> Screening:
        try:
            self.method = self._choose_method()
            if self.session.measurable:
                self.summary.read_limits()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        if isinstance(self.method, TurnScreening):  # the session ends other runners
            self.method.close()
        if self.triton_builds is not None:
            self.triton_builds.close()
        if self.device_builds is not None:
            self.device_builds.close()
        self.session.close()
        self.oracle.close()

    def _choose_method(self) -> TurnScreening | PairScreening:
        """Make the cases and the initial kernel; return the method.

        Pairs are needed unless Triton was compiled ahead for one card and the initial kernel does
        not tune itself.
        """
        session, tree = self.session, Path(self.job.tree)
        tolerance = Tolerance(session, self.oracle, Path(self.job.reference))
        with session.working():
            cases = [self.oracle.make(each, "normal") for each in self.target.classes]
        try:
            initial = session.make(tree, "start")
        except BuildError as error:
            raise InputError(f"does not compile: {error.what}",
                             where=self.target.source) from None
        if self.triton_builds is None or session.several or initial.tunes_itself:
            return PairScreening(session, self.oracle, tolerance, self.triton_builds, cases,
                                 initial, tree, self.summary)
        self._initial_key = self.triton_builds.expect(self.source.text)
        return TurnScreening(session, self.oracle, tolerance, self.triton_builds, cases, tree,
                             self._initial_key, self.summary)

    def measure(self, config: Config) -> Screened:
        """Screen a configuration; its own failure is a result. Raises other faults, Cancelled."""
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
        predicted = self.foresight.of(source) if self.foresight is not None else None
        if predicted is not None and predicted.refusal:
            raise Infeasible(predicted.refusal)
        assert self.method is not None  # set by __enter__
        screened = self.method.screen(source)
        if predicted is None or predicted.latency_us is None or self.session.measurable:
            return screened
        return replace(screened, latency_us=predicted.latency_us, latency_kind="predicted",
                       roofline_us=predicted.roofline_us,
                       pct_of_roofline=predicted.pct_of_roofline)

"""Predict latencies where nothing is measured: of a candidate, or of a loop's configurations.

The predictions of `cost_model` are for a Triton target on a card that need not be present. Whether
the card can launch a kernel is certain; latencies are estimates, which order candidates and never
decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from harness.compile import kernel_resources, triton_aot
from harness.compile.kernel_resources import KernelResources, by_kernel
from harness.compile.place import Place, kind_of
from harness.compile.precompile import Precompiler
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.errors import Cancelled, InputError, KoptError
from harness.formats.text import plain
from harness.isolation.zygote_client import Zygote
from harness.roofline import cost_model, roofline
from harness.roofline.cost_model import Prediction
from harness.tasks.target import Target
from harness.timing import stats
from harness.verdict import COMPILED, Evidence, Verdict

MOST_COMPILED = 8
"""Most lines of compiler evidence."""


@dataclass(frozen=True, kw_only=True)
class SourcePrediction:
    """The prediction for one source on one card, times in microseconds.

    Without a latency, `reasons` say why the card cannot launch it, or `error` why it is unknown.
    """

    card: str
    latency_us: float | None = None
    floor_us: float | None = None
    roofline_us: float | None = None
    predictions: tuple[Prediction, ...] = ()
    reasons: tuple[str, ...] = ()
    error: str = ""
    evidence: tuple[Evidence, ...] = ()

    @property
    def refusal(self) -> str:
        """Why the card cannot launch the source, in one line; empty if it can."""
        return f"{self.card} cannot launch it: {'; '.join(self.reasons)}" if self.reasons else ""

    @property
    def note(self) -> str:
        """The note of a verdict with these latencies, or without any."""
        if self.latency_us is None:
            return f"no prediction for {self.card}: {self.error}"
        return (f"latencies are predicted for {self.card} from compiled code: nothing was "
                "measured, no such card was used")

    @property
    def pct_of_roofline(self) -> float | None:
        if self.latency_us is None or self.roofline_us is None:
            return None
        return roofline.percent(self.roofline_us, self.latency_us)


def card_for(name: str, language: str) -> CardModel | None:
    """Return a card by its name, None for "". Raises InputError if it cannot be predicted."""
    if not name:
        return None
    card = datasheets.find_by_short_name(name) or datasheets.find(name)
    if card is None:
        raise InputError(f"no card {name!r} to predict for",
                         fix=f"one of {', '.join(known.name for known in datasheets.cards())}")
    if language != "triton":
        raise InputError(f"a {language} target cannot be predicted",
                         fix="predictions are for Triton: its kernels compile without their card")
    return card


def predict_tree(target: Target, tree: Path, card: CardModel, place: Place, *,
                 cold: bool) -> SourcePrediction:
    """Compile a tree for a card and predict it. Raises only Cancelled."""
    try:
        resources = triton_aot.inspect(target, tree, card.arch, Place(
            scratch=f"{place.scratch}/predict", python=place.python, env=place.env,
            yields=place.yields, cancel=place.cancel)).resources
    except Cancelled:
        raise
    except (KoptError, OSError) as error:
        return SourcePrediction(card=card.name, error=str(error))
    return predict_source(target, resources, card, cold=cold)


def predict_source(target: Target, resources: Sequence[KernelResources], card: CardModel, *,
                   cold: bool) -> SourcePrediction:
    """Return the prediction for compiled kernels, over all classes of the target."""
    evidence = compiler_evidence(resources)
    if reasons := kernel_resources.all_unlaunchable(resources):
        return SourcePrediction(card=card.name, reasons=reasons, evidence=evidence)
    predictions = [prediction for each in target.classes if (
        prediction := cost_model.predict(target, each, resources, card, cold=cold)) is not None]
    if len(predictions) < len(target.classes):
        return SourcePrediction(card=card.name, evidence=evidence,
                                error="no kernel launch was found")
    weights = [each.weight for each in target.classes]
    return SourcePrediction(
        card=card.name,
        latency_us=stats.mean_of_all([each.latency_us for each in predictions], weights),
        floor_us=stats.mean_of_all([each.floor_us for each in predictions], weights),
        roofline_us=stats.mean_of_all([each.roofline_us for each in predictions], weights),
        predictions=tuple(predictions), evidence=evidence)


def compiler_evidence(resources: Sequence[KernelResources]) -> tuple[Evidence, ...]:
    """Return what the compiler reports of each kernel and class, at most MOST_COMPILED lines."""
    lines: dict[str, None] = {}
    for group in by_kernel(resources).values():
        tuned = [each for each in group if each.config]
        lines |= dict.fromkeys([_describe_autotuned(tuned)] if tuned else [])
        lines |= dict.fromkeys(_describe(each) for each in group if not each.config)
    details = [plain(line, 400) for line in lines]
    if len(details) > MOST_COMPILED:
        details[MOST_COMPILED - 1:] = [f"and {len(details) - MOST_COMPILED + 1} more"]
    return tuple(Evidence(kind=COMPILED, detail=detail) for detail in details)


def _describe_autotuned(group: Sequence[KernelResources]) -> str:
    """Describe the first config that can be launched: it represents the others."""
    launchable = next((each for each in group if not kernel_resources.unlaunchable(each)), None)
    if launchable is None:
        return f"{_describe(group[0])}; none of {len(group)} configs can be launched"
    return (f"{_describe(launchable)}; {launchable.config}, the first of {len(group)} configs "
            "that can be launched")


def _describe(compiled: KernelResources) -> str:
    what = f"{compiled.arch} {plain(compiled.kernel, 120)} ({plain(compiled.config_class, 80)})"
    if compiled.error:
        return f"{what}: does not compile: {compiled.error}"
    registers = "registers unknown" if compiled.registers is None \
        else f"{compiled.registers} registers"
    spills = "spills unknown" if compiled.spills is None else f"{compiled.spills} bytes spilled"
    occupancy = "unknown" if compiled.occupancy is None else \
        f"{100 * compiled.occupancy:.0f} %" + (f" ({compiled.limiter})" if compiled.limiter else "")
    return (f"{what}: {registers}, {spills}, {compiled.shared_bytes} bytes of shared memory, "
            f"occupancy {occupancy}")


def with_predictions(verdict: Verdict, prediction: SourcePrediction) -> Verdict:
    """Return a correct verdict with predicted latencies, without outcome, ratio or speedup."""
    if prediction.latency_us is None or not verdict.correct:
        return verdict
    by_class = {each.config_class: each for each in prediction.predictions}
    rows = tuple(replace(row, latency_us=each.latency_us, floor_us=each.floor_us,
                         roofline_us=each.roofline_us,
                         pct_of_roofline=roofline.percent(each.roofline_us, each.latency_us))
                 for row in verdict.rows for each in [by_class[row.config_class]])
    return replace(verdict, rows=rows, latency_us=prediction.latency_us,
                   floor_us=prediction.floor_us, roofline_us=prediction.roofline_us,
                   latency_kind="predicted", pct_of_roofline=prediction.pct_of_roofline)


class SourcePredictor:
    """Predicts sources of one target on one card; compiles them in parallel."""

    def __init__(self, target: Target, tree: Path, card: CardModel, place: Place, *,
                 cold: bool) -> None:
        self.target, self.card, self.cold = target, card, cold
        self._tree, self._place = tree, place
        self._known: dict[str, SourcePrediction] = {}
        self._started = contextlib.ExitStack()
        self.problem = ""
        """Why the first unpredictable source could not be predicted."""

    def remember(self, source: str, latency_us: float, roofline_us: float | None) -> None:
        """Reuse a recorded prediction."""
        self._known[source] = SourcePrediction(card=self.card.name, latency_us=latency_us,
                                               roofline_us=roofline_us)

    def expect(self, sources: Sequence[str]) -> None:
        """Compile sources in the background."""
        for source in sources:
            if source not in self._known:
                self._compiler.expect(source)

    def of(self, source: str) -> SourcePrediction:
        """Return the prediction for a source, compiling it if necessary. Raises Cancelled."""
        if source not in self._known:
            key = self._compiler.expect(source)
            ready = self._compiler.get(key)
            self._compiler.forget(key)
            self._known[source] = SourcePrediction(card=self.card.name, error=ready.error) \
                if ready.error else \
                predict_source(self.target, ready.resources, self.card, cold=self.cold)
        prediction = self._known[source]
        self.problem = self.problem or prediction.error
        return prediction

    @cached_property
    def _compiler(self) -> Precompiler:
        kind = kind_of(self._place, self.target.language)
        zygote = self._started.enter_context(
            contextlib.closing(Zygote.start(kind, yields=self._place.yields)))
        return self._started.enter_context(Precompiler(
            self.target, self._tree, self.card.arch, replace(self._place, zygote=zygote)))

    def close(self) -> None:
        self._started.close()

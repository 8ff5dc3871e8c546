"""Predictions where nothing is measured: of a verdict's candidate, of a loop's configurations.

For a Triton target and a card that need not be here, by `cost_model`. What the card cannot launch
is known for sure; how long the rest takes is a guess that orders and never decides.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compile import kernel, launch_limits, triton_aot
from harness.compile.kernel import Place
from harness.compile.precompile import Ahead
from harness.compile.triton_aot import KernelResources
from harness.devices import architectures as archs
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.errors import Cancelled, InputError, KoptError
from harness.formats.text import plain
from harness.isolation.device_lock import Turnstile
from harness.isolation.zygote_client import Zygote
from harness.roofline import cost_model, roofline
from harness.roofline.cost_model import Prediction
from harness.target import Target
from harness.timing import stats
from harness.verdict import COMPILED, Evidence, Verdict

NOT_LAUNCHED = "nothing is known of a launch"
MOST_COMPILED = 8


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """What is predicted of one source on one card, latencies in microseconds.

    Without a latency `reasons` say why the card cannot launch it, or `error` why nobody can tell.
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
        """Why the card cannot launch it, in one line; empty when it can."""
        return f"{self.card} cannot launch it: {'; '.join(self.reasons)}" if self.reasons else ""

    @property
    def note(self) -> str:
        """What a verdict says of its latencies."""
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
    """Return the card that is to be predicted for, None for no name.

    Raises InputError for a card that is not known and a target that is no Triton kernel.
    """
    if not name:
        return None
    card = datasheets.find_by_short_name(name) or datasheets.find(name)
    if card is None:
        raise InputError(f"no card {name!r} to predict for",
                         fix=f"one of {', '.join(one.name for one in datasheets.CARDS)}")
    if language != "triton":
        raise InputError(f"a {language} target cannot be predicted",
                         fix="predictions are for Triton: its kernels compile without their card")
    return card


def of_tree(target: Target, tree: Path, card: CardModel, place: Place, *, cold: bool,
            yields: Turnstile | None, cancel: threading.Event | None) -> Foretold:
    """Compile a tree for a card and predict it. Raises Cancelled alone."""
    try:
        found = triton_aot.inspect(target, tree, card.arch, Path(place.scratch) / "predict",
                            python=place.python, env=place.env, yields=yields, cancel=cancel)
    except Cancelled:
        raise
    except (KoptError, OSError) as error:
        return Foretold(card=card.name, error=str(error))
    return foretell(target, found, card, cold=cold)


def foretell(target: Target, resources: Sequence[KernelResources], card: CardModel, *,
             cold: bool) -> Foretold:
    """Return the prediction for what was compiled, over all classes of the target."""
    [told] = cost_model.rank(target, {"": resources}, card, cold=cold)
    if told.latency_us is None:
        return Foretold(card=card.name, reasons=told.reasons, evidence=compiled(resources),
                        error="" if told.reasons else NOT_LAUNCHED)
    weights = [one.weight for one in target.classes]
    return Foretold(card=card.name, latency_us=told.latency_us,
                    floor_us=_mean([one.floor_us for one in told.predictions], weights),
                    roofline_us=_mean([one.roofline_us for one in told.predictions], weights),
                    predictions=told.predictions, evidence=compiled(resources))


def _mean(times_us: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return the weighted geometric mean, None where a time is zero."""
    if not all(times_us):
        return None
    return math.exp(stats.weighted_mean([math.log(us) for us in times_us], weights))


def compiled(resources: Sequence[KernelResources]) -> tuple[Evidence, ...]:
    """Return what the compiler said of each kernel and class, no more than MOST_COMPILED lines.

    Of an autotuned kernel the first config that can be launched stands for the others.
    """
    groups: dict[tuple[str, str, str, bool], list[KernelResources]] = {}
    for one in resources:
        groups.setdefault((one.arch, one.kernel, one.config_class, bool(one.config)),
                          []).append(one)
    lines: dict[str, None] = {}
    for group in groups.values():
        lines |= dict.fromkeys([_tuned(group)] if group[0].config else map(_compiled, group))
    told = [plain(one, 400) for one in lines]
    if len(told) > MOST_COMPILED:
        told[MOST_COMPILED - 1:] = [f"and {len(told) - MOST_COMPILED + 1} more"]
    return tuple(Evidence(kind=COMPILED, detail=one) for one in told)


def _tuned(group: Sequence[KernelResources]) -> str:
    able = next((one for one in group if (arch := archs.find(one.arch)) is None
                 or not launch_limits.reasons(arch, one)), None)
    if able is None:
        return f"{_compiled(group[0])}; none of {len(group)} configs can be launched"
    return (f"{_compiled(able)}; {able.config}, the first of {len(group)} configs that can be "
            "launched")


def _compiled(one: KernelResources) -> str:
    what = f"{one.arch} {plain(one.kernel, 120)} ({plain(one.config_class, 80)})"
    if one.error:
        return f"{what}: does not compile: {one.error}"
    registers = "registers not known" if one.registers is None else f"{one.registers} registers"
    spills = "spills not known" if one.spills is None else f"{one.spills} bytes spilled"
    occupancy = "not known" if one.occupancy is None else \
        f"{100 * one.occupancy:.0f} %" + (f" ({one.limiter})" if one.limiter else "")
    return (f"{what}: {registers}, {spills}, {one.shared_bytes} bytes of shared memory, "
            f"occupancy {occupancy}")


def filled(verdict: Verdict, told: Foretold) -> Verdict:
    """Return a correct verdict with predicted latencies: no outcome, no ratio, no speedup."""
    if told.latency_us is None or not verdict.correct:
        return verdict
    by = {one.config_class: one for one in told.predictions}
    rows = [replace(row, latency_us=by[row.config_class].latency_us,
                    floor_us=by[row.config_class].floor_us,
                    roofline_us=by[row.config_class].roofline_us,
                    pct_of_roofline=roofline.percent(
                        by[row.config_class].roofline_us, by[row.config_class].latency_us))
            for row in verdict.rows]
    return replace(verdict, rows=tuple(rows), latency_us=told.latency_us, floor_us=told.floor_us,
                   roofline_us=told.roofline_us,
                   latency_kind="predicted", pct_of_roofline=told.pct_of_roofline)


class Foresight:
    """Predicts many sources of one target on one card, compiled side by side when first asked for.

    Close it to end what still compiles.
    """

    def __init__(self, target: Target, tree: Path, card: CardModel, scratch: Path, *, cold: bool,
                 python: str | None = None, env: Mapping[str, str] | None = None,
                 yields: Turnstile | None = None, cancel: threading.Event | None = None) -> None:
        self.target, self.card, self.cold = target, card, cold
        self._tree, self._scratch = tree, scratch
        self._python, self._env = python, dict(env or {})
        self._yields, self._cancel = yields, cancel
        self._known: dict[str, Foretold] = {}
        self._zygote: Zygote | None = None
        self._ahead: Ahead | None = None
        self.problem = ""
        """Why some source could not be predicted."""

    def remember(self, source: str, latency_us: float, roofline_us: float | None) -> None:
        """Take over what was predicted before."""
        self._known[_name(source)] = Foretold(card=self.card.name, latency_us=latency_us,
                                              roofline_us=roofline_us)

    def expect(self, sources: Sequence[str]) -> None:
        """Have sources compiled in the background."""
        for source in sources:
            if _name(source) not in self._known:
                self._compiler().expect(source)

    def of(self, source: str) -> Foretold:
        """Return what is predicted of a source, compiled now if it was not. Raises Cancelled."""
        name = _name(source)
        if name not in self._known:
            ahead = self._compiler()
            key = ahead.expect(source)
            ready = ahead.get(key)
            ahead.forget(key)
            self._known[name] = Foretold(card=self.card.name, error=ready.error) if ready.error \
                else foretell(self.target, ready.resources, self.card, cold=self.cold)
        told = self._known[name]
        self.problem = self.problem or told.error
        return told

    def _compiler(self) -> Ahead:
        if self._ahead is None:
            place = Place(device="cpu", scratch=str(self._scratch), python=self._python,
                          env=self._env)
            kind = kernel.kind_of(place, self.target.language)
            self._zygote = None if kind is None else Zygote.start(kind, yields=self._yields)
            self._ahead = Ahead(self.target, self._tree, self.card.arch, self._scratch,
                                python=self._python, env=self._env, zygote=self._zygote,
                                yields=self._yields, cancel=self._cancel)
        return self._ahead

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        if self._zygote is not None:
            self._zygote.close()


def _name(source: str) -> str:
    return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()

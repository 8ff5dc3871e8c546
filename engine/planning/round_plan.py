"""A round's plan: which slots there are, and one hypothesis for each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from engine.journal.records import GLOBAL
from engine.manifest.schema import PoolSpec
from engine.planning import directions, stagnation
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.directions import SearchDirection
from engine.planning.stagnation import DIRECTIONS, StagnationReview
from engine.task import Task
from harness.formats.text import plain
from harness.search.space.knobs import Knob

IMPLAUSIBLE = 100.0
"""A speedup from here on is no success of its kind, whatever was measured."""
MAX_INBOX = 4
MAX_TRIALS = 10_000


class SlotKindStats(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of slot fared in the last round: candidates' speedups, and slots filled."""

    speedups: tuple[float, ...] = ()
    slots: int = 0

    @property
    def score(self) -> float:
        """Best plausible speedup times the share of slots that had one; 1 where there was none."""
        plausible = [s for s in self.speedups if 0 < s < IMPLAUSIBLE]
        if not plausible or not self.slots:
            return 1.0
        return max(plausible) * len(plausible) / self.slots


class PlanInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made from.

    `tried` are the hypotheses that slots have had on this best; `review` is what rounds without a
    gain demand, `brief` what agents are told of it.
    """

    campaign: str
    round: int
    slots: int
    pool: PoolSpec
    knobs: tuple[Knob, ...]
    leads: tuple[TunableBottleneck, ...] = ()
    templates: tuple[str, ...] = ()
    inbox: tuple[Path, ...] = ()
    planned: SlotKindStats = SlotKindStats()
    fixed: SlotKindStats = SlotKindStats()
    review: StagnationReview | None = None
    tried: frozenset[str] = frozenset()
    brief: str = ""
    begun: tuple[tuple[str, str], ...] = ()
    """Hypotheses and slots of patches that were handed in, where the round was cut short."""
    may_split: bool = False
    """Whether there are classes and knobs to go apart, and a gain was kept before."""

    @property
    def trials(self) -> int:
        """Trials of a search slot: more of them after rounds without a gain."""
        width = 1 if self.review is None else self.review.width
        return min(MAX_TRIALS, self.pool.trials * width)

    @property
    def may_search(self) -> bool:
        return bool(self.knobs) and "search" in self.pool.backends

    @property
    def new(self) -> list[SearchDirection]:
        """The directions for a search that no slot has followed on this best."""
        depth = "review" if self.review is None else self.review.depth
        return directions.new(self.leads, self.tried, depth) if self.may_search else []


def planned_share(outlook: PlanInputs) -> int:
    """Return how many slots are planned; the canonical fixed slot always stays.

    Half in round 1 (the first after the baseline), then by each kind's score in the last round; a
    review has room for its new directions.
    """
    n = outlook.slots
    if outlook.pool.mode == "fixed" or n <= 1:
        return 0
    if outlook.pool.mode == "planned":
        return n - 1
    least = 1 if outlook.review is None else DIRECTIONS
    planned, fixed = outlook.planned.score, outlook.fixed.score
    share = n // 2 if outlook.round <= 2 or n <= 2 else round(n * planned / (planned + fixed))
    return min(n - 1, max(least, share))


def plan(outlook: PlanInputs) -> list[Task]:
    """Return the round's tasks: inbox, planned, rewrite, and the fixed one last."""
    share = planned_share(outlook)
    begun = dict(outlook.begun)
    handed_in = _take(outlook.inbox, begun) if "inbox" in outlook.pool.backends else []
    free = (slot for n in count(1) if (slot := f"inbox-{n}") not in begun.values())
    tasks = [_inbox(begun.get(_handed_in(path)) or next(free), path) for path in handed_in]
    known_forms = outlook.review is not None and outlook.review.depth == "state of the art"
    first = _rewrites(outlook, share) if known_forms else []
    planned = _planned(outlook, share - len(first))
    rewrites = first or _rewrites(outlook, outlook.slots - len(planned) - 1)
    tasks += planned + _split(outlook) + rewrites
    if outlook.may_search:
        tasks.append(Task(slot="fixed", kind="fixed", backend="search",
                          hypothesis="canonical: every knob of the best source, searched together",
                          bottleneck=_name(outlook.leads[0]) if outlook.leads else "",
                          seed=_seed(outlook, "fixed"), trials=outlook.trials))
    elif outlook.pool.cli:
        tasks.append(_cli(outlook, "fixed", outlook.leads[0] if outlook.leads else None, 0))
    return tasks


def _scope(outlook: PlanInputs, lead: TunableBottleneck | None) -> str:
    """Return the class that work on a bottleneck is about, where the leads tell classes apart."""
    named = {one.bottleneck.config_class for one in outlook.leads} - {""}
    own = "" if lead is None or len(named) < 2 else lead.bottleneck.config_class
    return own or GLOBAL


def _planned(outlook: PlanInputs, share: int) -> list[Task]:
    """One task a lead; coding agents, where there are some, take turns with the search.

    After rounds without a gain it is one task a new direction, as long as there are some.
    """
    tasks: list[Task] = []
    searchable = [lead for lead in outlook.leads if lead.knobs] if outlook.may_search else []
    new = outlook.new if outlook.review is not None else []
    turn = 0
    for i in range(share):
        slot = f"planned-{i + 1}"
        if outlook.pool.cli and (i % 2 == 0 or not searchable):
            lead = outlook.leads[i % len(outlook.leads)] if outlook.leads else None
            tasks.append(_cli(outlook, slot, lead, turn))
            turn += 1
        elif searchable:
            lead = searchable[(i + outlook.round) % len(searchable)]
            found = new.pop(0) if new else \
                SearchDirection(lead=lead, knobs=_some(lead.knobs, outlook.round + i))
            tasks.append(Task(
                slot=slot, kind="planned", backend="search", knobs=found.knobs,
                hypothesis=found.hypothesis, bottleneck=_name(found.lead),
                seed=_seed(outlook, slot), trials=outlook.trials,
                scope=_scope(outlook, found.lead)))
    return tasks


def _some(names: Sequence[str], turn: int) -> tuple[str, ...]:
    """Narrow a lead to one or two knobs, others each round: one hypothesis, not a sweep."""
    if len(names) <= 1:
        return tuple(names)
    first = turn % len(names)
    return tuple(dict.fromkeys((names[first], names[(first + 1) % len(names)])))[:1 + turn % 2]


SPLIT = "config classes that want other knobs get a kernel of their own, behind a dispatch"


def _split(outlook: PlanInputs) -> list[Task]:
    """Look once on every best but the first whether classes go apart: the default path of a split
    keeps the knobs that it has.
    """
    if not outlook.may_split or SPLIT in outlook.tried or outlook.pool.mode == "fixed":
        return []
    return [Task(slot="split", kind="planned", backend="split", hypothesis=SPLIT,
                 bottleneck=_name(outlook.leads[0]) if outlook.leads else "",
                 seed=_seed(outlook, "split"), trials=outlook.trials)]


def _rewrites(outlook: PlanInputs, room: int) -> list[Task]:
    if outlook.pool.mode == "planned" or "rewrite-template" not in outlook.pool.backends:
        return []
    return [Task(slot=f"rewrite-{name}", kind="rewrite", backend="rewrite-template", option=name,
                 hypothesis=f"a known good form of the op: template {name}",
                 bottleneck=_name(outlook.leads[0]) if outlook.leads else "",
                 seed=_seed(outlook, name), trials=outlook.trials)
            for name in outlook.templates[:max(0, room)]]


def _handed_in(path: Path) -> str:
    return f"handed in: {_printable(path.name)}"


def _take(waiting: Sequence[Path], begun: Mapping[str, str]) -> list[Path]:
    """Return the patches of a round: those that it has begun, and as many more as it may have."""
    again = {path for path in waiting if _handed_in(path) in begun}
    fresh = [path for path in waiting if path not in again][:max(0, MAX_INBOX - len(begun))]
    return [path for path in waiting if path in again or path in fresh]


def _inbox(slot: str, path: Path) -> Task:
    return Task(slot=slot, kind="planned", backend="inbox", option=str(path),
                hypothesis=_handed_in(path), seed=0, trials=0,
                bottleneck="named by its author")


def _printable(name: str) -> str:
    """Return a file's name as the journal can hold it, whatever bytes it is made of."""
    return plain(name.encode(errors="surrogateescape").decode(errors="replace"), 200)


def _cli(outlook: PlanInputs, slot: str, lead: TunableBottleneck | None, turn: int) -> Task:
    command = outlook.pool.cli[turn % len(outlook.pool.cli)]
    aim = "make the kernel faster" if lead is None else \
        f"relieve {lead.bottleneck.limiter}: {lead.bottleneck.advice}"
    if outlook.review is not None:
        idea = outlook.review.ideas[turn % len(outlook.review.ideas)]
        aim, lead = stagnation.aimed(idea, outlook.leads, lead)
    return Task(slot=slot, kind="fixed" if slot == "fixed" else "planned", backend="cli",
                option=command.name, hypothesis=f"{command.name}: {aim}",
                bottleneck="" if lead is None else f"{_name(lead)}: {lead.bottleneck.detail}",
                scope=_scope(outlook, lead), seed=_seed(outlook, slot), trials=0,
                round=outlook.round, brief=outlook.brief)


def _name(lead: TunableBottleneck) -> str:
    b = lead.bottleneck
    value = "" if b.value is None else f" ({b.value:.0f} {b.metric})"
    return f"{b.id} {b.limiter}{' in ' + b.config_class if b.config_class else ''}{value}"


def _seed(outlook: PlanInputs, slot: str) -> int:
    """Return a seed that is the same when the round is run again after a crash."""
    return zlib.crc32(f"{outlook.campaign}/{outlook.round}/{slot}".encode())

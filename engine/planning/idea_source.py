"""Distinct one-sentence hypotheses for coding agents, without a model.

They come from the bottlenecks and the rows of knowledge/strategies.yaml that fit them, from earlier
campaigns' tips and from what failed in this one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine.knowledge import strategy_table
from engine.knowledge.strategy_record import NO_RECORD, StrategyRecord
from engine.knowledge.strategy_table import StrategyPlace
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.stagnation import ADVICE, BottleneckPlace, PlannedIdea, TriedDirections
from engine.transformations import transformation_registry
from harness.formats.text import one_line

MAX_LENGTH = 240
"""Most characters of a hypothesis that quotes a tip or a failure."""
SAME = 0.7
"""Share of common words at which two hypotheses count as the same idea."""
QUOTED = 3
"""Most tips, and most failures, that a round turns into hypotheses."""
ANYWHERE = StrategyPlace()
NO_RECORDS: Mapping[str, StrategyRecord] = {}
_FILLERS = re.compile(r"(?:an?|the|of|in|on|to|for|and|or|so|that|it|is|be|by|with|from|into|at|as"
                      r"|its|against|relieve|use|instead)")
"""Words that do not distinguish hypotheses."""


def is_repeat(text: str, others: Iterable[str]) -> bool:
    """Return whether a hypothesis says in other words what one of the others says."""
    return any(_is_same(_words(text), _words(other)) for other in others)


def ideas(bottlenecks: Sequence[TunableBottleneck], tried: TriedDirections,
          tips: Sequence[str] = (), failures: Sequence[str] = (), *,
          place: StrategyPlace = ANYWHERE,
          records: Mapping[str, StrategyRecord] = NO_RECORDS) -> list[PlannedIdea]:
    """Return the ideas that no slot has tried on the present best, the most promising first.

    `tips` are lessons of earlier campaigns, the newest last; `failures` are promising changes that
    were rejected, with the reason. A transformation tries every strategy that lists it. Bottlenecks
    take turns; strategies kept most often on this card come first. Ideas that lost on an earlier
    best come last.
    """
    quoted = [*(PlannedIdea(key=_key("repair", text), text=one_line(
        f"make it correct: {text}", MAX_LENGTH))
                for text in failures[:QUOTED]),
              *(PlannedIdea(key=_key("tip", text), text=one_line(
                  f"apply an earlier campaign's lesson: {text}", MAX_LENGTH))
                for text in reversed(tips) if text.startswith("helped:"))][:2 * QUOTED]
    seen, made = tried.ideas, strategy_table.listing(_names(tried.transforms))
    columns = [[idea for idea in _against(tunable, place, records) if (
        idea.key, idea.place.limiter, idea.place.config_class) not in seen
        and idea.strategy not in made]
        for tunable in bottlenecks or (None,)]
    chosen = [idea for idea in quoted if (idea.key, "", "") not in seen]
    first, lost = _in_turns(columns, chosen), strategy_table.listing(
        _names(tried.lost_transforms))
    at = len(bottlenecks)
    return sorted([*first[:at], *chosen, *first[at:]],
                  key=lambda idea: idea.key in tried.lost_ideas or idea.strategy in lost)


def _names(options: Iterable[str]) -> list[str]:
    return [transformation_registry.of_option(option)[0] for option in options]


def _in_turns(columns: Sequence[list[PlannedIdea]],
              others: Sequence[PlannedIdea]) -> list[PlannedIdea]:
    """Return the columns' ideas in turn, without repeats of each other or of `others`.

    A strategy aimed at another bottleneck is a repeat too: it changes the same source in one way.
    """
    texts, strategies = [_words(idea.text) for idea in others], set[str]()
    queues, kept = [iter(column) for column in columns], list[PlannedIdea]()
    while queues:
        for queue in list(queues):
            idea = next((idea for idea in queue if idea.strategy not in strategies and not any(
                _is_same(_words(idea.text), other) for other in texts)), None)
            if idea is None:
                queues.remove(queue)
            else:
                kept.append(idea)
                texts.append(_words(idea.text))
                strategies.add(idea.strategy)
    return kept


def distinct(proposed: Iterable[PlannedIdea], known: Iterable[str] = ()) -> list[PlannedIdea]:
    """Return ideas without those that repeat an earlier one or a `known` text."""
    kept: list[PlannedIdea] = []
    texts = [_words(text) for text in known]
    for idea in proposed:
        idea_words = _words(idea.text)
        if not any(_is_same(idea_words, other) for other in texts):
            texts.append(idea_words)
            kept.append(idea)
    return kept


def _against(tunable: TunableBottleneck | None, place: StrategyPlace,
             records: Mapping[str, StrategyRecord]) -> Iterator[PlannedIdea]:
    """Yield the bottleneck's own advice, then the table's rows for its limiter, then for any."""
    limiter, where = "", ""
    if tunable is not None:
        limiter, where = tunable.bottleneck.limiter, f", {BottleneckPlace.of(tunable)}"
        yield PlannedIdea(key=ADVICE, tunable=tunable,
                          text=f"relieve {limiter}: {tunable.bottleneck.advice}")
    rows = [row for row in strategy_table.against(limiter, place) if not row.shows]
    for row in sorted(rows, key=lambda row: (
            not row.against, -records.get(row.key, NO_RECORD).chance)):
        yield PlannedIdea(key=row.key, tunable=tunable, text=f"{row.text}{where}")


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[a-z0-9]+", text.lower())
                     if not _FILLERS.fullmatch(word))


def _is_same(left: frozenset[str], right: frozenset[str]) -> bool:
    return left == right or len(left & right) >= SAME * max(1, len(left | right))


def _key(kind: str, text: str) -> str:
    return f"{kind}-{zlib.crc32(text.encode(errors='replace')):08x}"

"""Plan a round: which slots it has, and one hypothesis for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import msgspec

from engine.knowledge import strategy_table
from engine.planning import idea_source, stagnation
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.plan_inputs import PlanInputs, planned_share
from engine.planning.pool_size import Author, authors
from engine.planning.stagnation import (
    ROUNDS_TO_DEEPEST,
    PlannedIdea,
    SearchDirection,
    StagnationReview,
    TriedDirections,
)
from engine.routing.rewrite_routes import Route
from engine.routing.translation_pairs import LANGUAGES
from engine.subagents.subagent_registry import DEFAULT
from engine.task import AGENT_BACKENDS, SlotKind, Task
from engine.transformations.transformation_registry import ApplicableChange
from harness.formats.quantities import counted
from harness.formats.text import plain

FIRST_ROUND = 2
"""The number of the first round: the baseline is round 1."""
MAX_INBOX = 4


def plan(inputs: PlanInputs) -> list[Task]:
    """Return the round's tasks: inbox, planned, split, rewrite, and the fixed one last.

    No two of them follow the same idea.
    """
    share = planned_share(inputs)
    rewrites_first = inputs.review is not None and inputs.review.depth == "state of the art"
    first = _rewrites(inputs, share) if rewrites_first else []
    planned = _planned(inputs, share - len(first))
    rewrites = first or _rewrites(inputs, inputs.slots - len(planned) - 1)
    if inputs.pool.mode != "fixed":
        idle = inputs.slots - len(planned) - len(rewrites) - 1
        planned = _planned(inputs, share - len(first), idle)
    tasks = [*inbox_tasks(inputs), *planned, *_split(inputs), *rewrites]
    if inputs.may_search:
        tasks.append(Task(slot="fixed", kind="fixed", backend="search",
                          hypothesis="fixed slot: search all knobs of the best source together",
                          bottleneck="", seed=inputs.seed("fixed"),
                          trials=inputs.trials))
    elif authors(inputs.pool):
        task = _agent_task(inputs, "fixed", "fixed", _in_turn(inputs, tasks),
                           "fixed slot: make the kernel faster in its own language")
        heaviest = inputs.survey.bottlenecks[0] if inputs.survey.bottlenecks else None
        tasks.append(_aimed(inputs, heaviest, task))
    return tasks


def idle_slots(inputs: PlanInputs, tasks: Sequence[Task]) -> str:
    """Return how many slots a plan leaves empty, and why, "" for none."""
    idle = inputs.slots - sum(task.backend not in ("inbox", "split") for task in tasks)
    if idle <= 0 or inputs.pool.mode == "fixed" or \
            set(inputs.pool.backends) <= {"inbox", "replay"}:
        return ""
    return f"{counted(idle, 'slot')} idle: no further idea differs from those of the others" \
        if authors(inputs.pool) else \
        f"{counted(idle, 'slot')} idle: no rewrite or transformation is left, and no agent is in " \
        "the pool"


def _planned(inputs: PlanInputs, share: int, idle: int = 0) -> list[Task]:
    """Return at most `share` tasks: coding agents, transformations and searches take turns.

    Transformations, then coding agents, fill up to `idle` further slots.
    """
    tasks: list[Task] = []
    ideas = _ideas(inputs) if authors(inputs.pool) else []
    changes, directions = inputs.new_changes, _directions(inputs)
    for i in range(share + idle):
        slot = f"planned-{i + 1}"
        without_agents = (directions, changes) if inputs.round % 2 == 0 else (changes, directions)
        in_turn = (ideas, *without_agents) if i < share else (changes, ideas)
        queues: list[Sequence[object]] = [queue for queue in in_turn if queue]
        if not queues:
            break
        queue = queues[i % len(queues) if i < share else 0]
        if queue is ideas:
            idea = ideas.pop(0)
            tasks.append(_aimed(inputs, idea.tunable, _agent_task(
                inputs, slot, "planned", _in_turn(inputs, tasks), idea.text, idea=idea.key)))
        elif queue is changes:
            tasks.append(_transformation_task(inputs, slot, changes.pop(0)))
        else:
            tasks.append(_search(inputs, slot, directions.pop(0)))
        made = [change for change in inputs.new_changes
                if change.option in {task.option for task in tasks if task.backend == "transform"}]
        ideas[:] = [idea for idea in ideas if not any(
            _is_idea_of(change, idea.strategy, idea.text) for change in made)]
        changes[:] = _not_by_agents(tasks, changes)
    return tasks


def _in_turn(inputs: PlanInputs, tasks: Sequence[Task]) -> Author:
    """Return the agent that gets a round's next task.

    Each round begins with the next agent, so that all work in a pool of more agents than slots.
    """
    agents = authors(inputs.pool)
    turn = sum(task.backend in AGENT_BACKENDS for task in tasks)
    return agents[(inputs.round - FIRST_ROUND + turn) % len(agents)]


def _not_by_agents(tasks: Sequence[Task],
                   changes: Sequence[ApplicableChange]) -> list[ApplicableChange]:
    """Return the transformations whose idea no agent's task follows."""
    by_agents = [(stagnation.strategy_of(task.idea, task.limiter),
                  task.hypothesis.removeprefix(f"{task.option}: "))
                 for task in tasks if task.backend in AGENT_BACKENDS]
    return [change for change in changes if not any(
        _is_idea_of(change, strategy, text) for strategy, text in by_agents)]


def _is_idea_of(change: ApplicableChange, strategy: str, text: str) -> bool:
    """Return whether a transformation does what an agent's idea says, by its key or in words."""
    keys = strategy_table.listing([change.name])
    return strategy in keys or idea_source.is_repeat(text, (
        change.what, *(row.text for row in strategy_table.strategies() if row.key in keys)))


def _transformation_task(inputs: PlanInputs, slot: str, change: ApplicableChange) -> Task:
    rank, _, key = inputs.strategy_of(change.name)
    tunable = inputs.survey.bottlenecks[rank if key else 0] if inputs.survey.bottlenecks else None
    return Task(slot=slot, kind="planned", backend="transform", option=change.option, idea=key,
                hypothesis=change.what, seed=inputs.seed(slot),
                bottleneck="" if tunable is None else label(tunable),
                limiter="" if tunable is None else tunable.bottleneck.limiter,
                trials=inputs.trials if change.knobs else 0)


def _ideas(inputs: PlanInputs) -> list[PlannedIdea]:
    """Return the ideas for agents: a model's, then the review's, then those of `idea_source`.

    The ideas of deeper reviews come last, so that a wide round has one for each slot.
    """
    plain_ideas = idea_source.ideas(inputs.survey.bottlenecks, inputs.tried, inputs.tips,
                                    inputs.failures, place=inputs.place,
                                    records=inputs.records)
    return idea_source.distinct([
        *inputs.suggested, *_of_review(inputs, inputs.review), *plain_ideas,
        *_of_review(inputs, stagnation.review(ROUNDS_TO_DEEPEST, inputs.tried))])


def _of_review(inputs: PlanInputs, review: StagnationReview | None) -> Iterator[PlannedIdea]:
    for turn, idea in enumerate(() if review is None else review.ideas):
        yield idea if idea.tunable or not inputs.survey.bottlenecks else idea.aimed(
            inputs.survey.bottlenecks[turn % len(inputs.survey.bottlenecks)])


def _directions(inputs: PlanInputs) -> list[SearchDirection]:
    """Return the search directions, each set of knobs once; a review's new ones come first."""
    if not inputs.may_search:
        return []
    tunables = [tunable for tunable in inputs.survey.bottlenecks if tunable.knobs]
    directions = inputs.new_directions if inputs.review is not None else []
    for i in range(inputs.slots if tunables else 0):
        tunable = tunables[(i + inputs.round) % len(tunables)]
        directions.append(SearchDirection(tunable=tunable,
                                          knobs=narrow_knobs(tunable.knobs, inputs.round + i)))
    by_knobs: dict[frozenset[str], SearchDirection] = {}
    for direction in (*directions, *inputs.directions(TriedDirections())):
        by_knobs.setdefault(frozenset(direction.knobs), direction)
    by_knobs.pop(frozenset(knob.name for knob in inputs.survey.knobs), None)  # the fixed slot's
    return list(by_knobs.values())


def _search(inputs: PlanInputs, slot: str, direction: SearchDirection) -> Task:
    bottleneck = direction.tunable.bottleneck
    return Task(slot=slot, kind="planned", backend="search", knobs=direction.knobs,
                hypothesis=direction.hypothesis, bottleneck=label(direction.tunable),
                limiter=bottleneck.limiter, config_class=bottleneck.config_class,
                seed=inputs.seed(slot), trials=inputs.trials, scope=inputs.scope(direction.tunable))


def narrow_knobs(names: Sequence[str], turn: int) -> tuple[str, ...]:
    """Narrow a bottleneck's knobs to one or two that vary by `turn`: one hypothesis, no sweep."""
    if len(names) <= 1:
        return tuple(names)
    first = turn % len(names)
    return tuple(dict.fromkeys((names[first], names[(first + 1) % len(names)])))[:1 + turn % 2]


def _split(inputs: PlanInputs) -> list[Task]:
    """Return the split slot's task, once for each best but the baseline.

    It searches for classes that need kernels of their own; the default path of a split keeps the
    knobs of the best.
    """
    if not inputs.may_split or inputs.tried.split or inputs.pool.mode == "fixed":
        return []
    return [Task(slot="split", kind="planned", backend="split",
                 hypothesis="config classes that need other knobs get their own kernel, behind a "
                            "dispatch",
                 bottleneck="", seed=inputs.seed("split"),
                 trials=inputs.trials)]


def _rewrites(inputs: PlanInputs, room: int) -> list[Task]:
    """Return at most `room` rewrites: templates, then agents' rewrites, one for each language."""
    if inputs.pool.mode == "planned":
        return []
    tasks = [Task(slot=f"rewrite-{offer.name}", kind="rewrite", backend="rewrite-template",
                  option=offer.name, hypothesis=offer.hypothesis, bottleneck="",
                  seed=inputs.seed(offer.name), trials=inputs.trials)
             for offer in inputs.survey.templates if "rewrite-template" in inputs.pool.backends]
    routes: dict[str, Route] = {}
    for route in inputs.survey.routing.routes if authors(inputs.pool) else ():
        routes.setdefault(route.language, route)
    for route in routes.values():
        tasks.append(_agent_task(
            inputs, f"rewrite-{route.language}", "rewrite", _in_turn(inputs, tasks),
            f"rewrite the kernel in {LANGUAGES[route.language].title}: {route.reason}",
            subagent=route.subagent, more=inputs.translations.get(route.language, "")))
    return tasks[:max(0, room)]


def inbox_tasks(inputs: PlanInputs) -> list[Task]:
    """Return a task for each patch that this round has begun, and for new ones up to MAX_INBOX."""
    begun = inputs.inbox_slots
    fresh = [path for path in inputs.survey.inbox if recorded_name(path) not in begun]
    fresh = fresh[:max(0, MAX_INBOX - len(begun))]
    free = (slot for n in count(1) if (slot := f"inbox-{n}") not in begun.values())
    return [Task(slot=begun.get(recorded_name(path)) or next(free), kind="planned",
                 backend="inbox", option=str(path), bottleneck="",
                 hypothesis=f"submitted: {_printable(path.name)}", seed=0, trials=0)
            for path in inputs.survey.inbox if path in fresh or recorded_name(path) in begun]


def recorded_name(path: Path) -> str:
    """Return a patch's file name as the journal records it in the slot's option."""
    return path.name.encode(errors="replace").decode()


def _printable(name: str) -> str:
    """Return a file name in a form that the journal can store, whatever bytes it contains."""
    return plain(name.encode(errors="surrogateescape").decode(errors="replace"), 200)


def _aimed(inputs: PlanInputs, tunable: TunableBottleneck | None, task: Task) -> Task:
    """Return a task aimed at a bottleneck, or unchanged without one."""
    if tunable is None:
        return task
    bottleneck = tunable.bottleneck
    return msgspec.structs.replace(
        task, bottleneck=f"{label(tunable)}: {bottleneck.detail}", limiter=bottleneck.limiter,
        config_class=bottleneck.config_class, scope=inputs.scope(tunable))


def _agent_task(inputs: PlanInputs, slot: str, kind: SlotKind, author: Author, aim: str, *,
                idea: str = "", subagent: str = DEFAULT, more: str = "") -> Task:
    """Return a task for a coding agent; `idea` is the key of its aim, `more` is for its prompt."""
    return Task(slot=slot, kind=kind, backend=author.backend, option=author.option,
                hypothesis=f"{author.option}: {aim}" if author.option else aim, bottleneck="",
                seed=inputs.seed(slot), trials=0, round=inputs.round, subagent=subagent, idea=idea,
                brief="\n".join(filter(None, (more, inputs.brief))))


def label(tunable: TunableBottleneck) -> str:
    """Return a bottleneck in words: `b3.1 memory in tall (41 % of roofline)`."""
    bottleneck = tunable.bottleneck
    value = "" if bottleneck.value is None else f" ({bottleneck.value:.0f} {bottleneck.metric})"
    where = f" in {bottleneck.config_class}" if bottleneck.config_class else ""
    return f"{bottleneck.id} {bottleneck.limiter}{where}{value}"

"""Asks a model what limits each new best; drops causes whose numbers were not measured.

The other causes go into the prompts of coding agents and of the planner, as advice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from engine.context import EngineContext
from engine.journal.decoded import plan_event
from engine.journal.decoded.plan_event import RoundPlan
from engine.knowledge import strategy_record
from engine.markdown import fenced
from engine.planning import bottlenecks, survey
from engine.planning.advice import model_request
from engine.planning.plan_inputs import PlanInputs
from engine.planning.pool_size import authors
from engine.planning.survey import Survey
from engine.verify import reference_lines
from engine.workers import slot_facts
from engine.workers.model import model_process
from engine.workers.model.model_process import RequestAnswer
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.quantities import counted, latency
from harness.formats.text import one_line, plain, read_text
from harness.verdict import Verdict

SUBAGENT = "trace-analyst"
MOST, SHORTEST, LONGEST = 6, 20, 300
"""Most causes that are used; least and most characters of a cause."""
COUNTS = 10
"""Whole numbers below this may be counts of what the source shows, such as its passes."""
MAX_SOURCE, MAX_MEASURED = 40_000, 24_000
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})+(?:\.\d+)?|(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TASK = """\
# Your task

Name what limits the present best, from these measurements alone.

{measured}

## Its source: `{path}`

{source}
"""
_BRIEF = """\
## What a model reads in these measurements

It is advice: its numbers were measured, its causes were not tested.

{causes}
"""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements that a model gets, and the names that its answer may use."""

    text: str
    source: str
    classes: frozenset[str]
    kernels: frozenset[str]


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """The causes that passed the check, and a note for people."""

    lines: tuple[str, ...] = ()
    note: str


def with_causes(context: EngineContext, inputs: PlanInputs,
                recorded: RoundPlan | None) -> PlanInputs:
    """Return the inputs with the causes that a model names for the best's times.

    It is asked only if the pool has coding agents. A round with a `recorded` plan, or on the
    previous round's best, gets the recorded causes. Raises CampaignStopped.
    """
    setup = context.setup
    spec = model_process.model_of(setup.manifest.pool, "analyst")
    last = plan_event.last(context.reader, setup.id)
    if recorded is not None:
        causes = Causes(lines=recorded.causes, note=recorded.analysis)
    elif spec is None or not authors(inputs.pool):
        return inputs
    elif last is not None and last.causes and last.surveyed == setup.repo.tip:
        causes = Causes(lines=last.causes, note=last.analysis)
    else:
        known = _measured(context, inputs.survey)
        answer = model_request.ask(
            context, spec, SUBAGENT, inputs.survey.routing.source, _TASK.format(
                measured=known.text, path=setup.target.source,
                source=fenced(known.source, MAX_SOURCE)),
            round=inputs.round, purpose="reads the measurements")
        causes = read(answer, known)
    brief = _BRIEF.format(causes="\n".join(f"- {line}" for line in causes.lines))
    strategies = strategy_record.brief_on_symptoms(causes.lines, inputs.place, inputs.records)
    return msgspec.structs.replace(
        inputs, causes=causes.lines, analysis=causes.note,
        brief="\n\n".join(filter(None, (
            brief if causes.lines else "", strategies, inputs.brief))))


def _measured(context: EngineContext, view: Survey) -> Measured:
    setup, target = context.setup, context.setup.target
    best = reference_lines.with_lines(survey.measured_best(context),
                                      reference_lines.read(context.reader, setup.id))
    source = read_text(setup.tree(setup.repo.tip) / target.source) if target.source else ""
    return Measured(
        text=plain(_listed(best, view, slot_facts.config_classes(target)), MAX_MEASURED),
        source=plain(source, MAX_SOURCE),
        classes=frozenset(row.config_class for row in best.rows),
        kernels=frozenset((target.op if isinstance(target, CommandTarget) else target.entry,
                           *(kernel.name for kernel in best.kernels),
                           *(tunable.bottleneck.kernel for tunable in view.bottlenecks))))


def _listed(best: Verdict, view: Survey, sizes: str) -> str:
    """Return the measurements as Markdown sections."""
    parts = {
        "Config classes": [
            f"{row.config_class}: {latency(row.latency_us)}" + (
                "" if row.pct_of_roofline is None else
                f", {row.pct_of_roofline:.0f} % of the roofline")
            for row in best.rows if row.latency_us is not None],
        "Their sizes": [sizes] if sizes else [],
        "Kernels by GPU time": [
            f"{kernel.name}: {100 * kernel.share:.1f} % of the run, {kernel.launches} launches of "
            f"{kernel.mean_us:.4g} us" for kernel in best.kernels],
        "What kopt derives from this, the heaviest first": [
            f"{bottleneck.kernel} {bottleneck.config_class}: {bottleneck.limiter}" + (
                "" if bottleneck.value is None
                else f", {bottleneck.metric} {bottleneck.value:.4g}") + f"; {bottleneck.detail}"
            for bottleneck in (tunable.bottleneck for tunable in view.bottlenecks)],
        "Compilers, launches, the device": [
            f"{entry.kind}: {entry.detail}" for entry in best.evidence],
    }
    return "\n\n".join(f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines)
                       for title, lines in parts.items() if lines)


def read(answer: RequestAnswer, known: Measured) -> Causes:
    """Return the valid causes of an answer, at most MOST."""
    if answer.fault:
        return Causes(note=f"not analysed by the model: {answer.fault}")
    stated, is_empty = model_request.entries(answer.text, "bottlenecks")
    if not stated:
        return Causes(note="the model names no cause" if is_empty else
                      "not analysed by the model: its answer is not a list of causes")
    numbers = [_value(text) for text in _NUMBER.findall(f"{known.text}\n{known.source}")]
    lines, faults = list[str](), list[str]()
    for entry in stated[:MOST]:
        fields = {key: one_line(str(entry.get(key) or ""), LONGEST)
                  for key in ("kernel", "config_class", "what", "evidence", "attack")}
        if fault := _fault(fields, known, numbers):
            faults.append(fault)
        else:
            lines.append(_line(fields, entry.get("line"), known.source.count("\n") + 1))
    left_out = f"; {len(faults)} left out: {faults[0]}" if faults else ""
    return Causes(lines=tuple(lines), note=(
        f"the model names {counted(len(stated[:MOST]), 'cause')}{left_out}"))


def _fault(fields: dict[str, str], known: Measured, numbers: Sequence[float]) -> str:
    """Return why a cause is not valid, or ""."""
    if len(fields["what"]) < SHORTEST:
        return "its cause is too short"
    if not fields["evidence"]:
        return "it has no evidence"
    if fields["config_class"] and fields["config_class"] not in known.classes:
        return f"there is no config class {fields['config_class']!r}"
    if fields["kernel"] and fields["kernel"] not in known.kernels and not bottlenecks.is_in(
            known.source, fields["kernel"]):
        return f"there is no kernel {fields['kernel']!r}"
    invented = [number for number in _NUMBER.findall(f"{fields['what']} {fields['evidence']}")
                if not _is_known(number, numbers)]
    return f"{invented[0]} was not measured" if invented else ""


def _is_known(text: str, numbers: Collection[float]) -> bool:
    """Return whether a number is a small count, or a known number rounded to its digits."""
    value = _value(text)
    digits = len(text.partition(".")[2]) if "e" not in text.lower() else 9
    return (text.isdigit() and value < COUNTS) or any(
        abs(value - other) <= 0.5 * 10 ** -digits + 1e-9 * abs(other) for other in numbers)


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _line(fields: dict[str, str], line: object, lines: int) -> str:
    where = " ".join(filter(None, (fields["kernel"], fields["config_class"])))
    at = f" (line {line})" if isinstance(line, int) and 0 < line <= lines else ""
    return "".join((f"{where}{at}: " if where or at else "", fields["what"].rstrip("."),
                    f"; {fields['evidence'].rstrip('.')}",
                    f"; {fields['attack'].rstrip('.')}" if fields["attack"] else ""))

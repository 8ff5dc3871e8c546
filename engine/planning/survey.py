"""Survey the best before a round: its knobs, its bottlenecks, the rewrites that fit it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.discovery.project import file_changes
from engine.journal.decoded.recorded import verdict_of
from engine.manifest.pool_schema import PoolSpec
from engine.planning import bottlenecks, kernel_routing
from engine.planning.bottlenecks import TunableBottleneck
from engine.routing.op_class import UNKNOWN, OpClass
from engine.routing.rewrite_routes import Routing
from engine.transformations import transformation_registry
from engine.transformations.transformation_registry import ApplicableChange
from engine.workers import inbox, template
from engine.workers.template import Offer
from harness.benchmark.spec.command_target import CommandTarget
from harness.compile import c_compiler, triton_aot
from harness.compile.device_code.device_build import DeviceCompiler, plain_name
from harness.compile.place import Place
from harness.compile.triton_aot import KernelLimit
from harness.errors import InputError, KoptError
from harness.formats.quantities import counted, latency
from harness.isolation import device_lock
from harness.roofline import ceilings, measured_peaks, roofline
from harness.roofline.roofline import Roofline
from harness.search.space import knobs as knob_source
from harness.search.space.knobs import Knob
from harness.tasks.target import OF_CARD, Language, Target
from harness.verdict import Row, Verdict

AGENT = "a worker under pool.cli, or pool.agent"
KNOB_LINES = {"triton": "BLOCK: tl.constexpr = 64  # kopt: knob BLOCK in [64, 128]",
              "python": "TILE = 32  # kopt: knob TILE in [16, 32]"}
C_KNOB_LINE = "#define TILE 32  // kopt: knob TILE in [16, 32]"


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the best before a round is planned."""

    knobs: tuple[Knob, ...] = ()
    bottlenecks: tuple[TunableBottleneck, ...] = ()
    templates: tuple[Offer, ...] = ()
    changes: tuple[ApplicableChange, ...] = ()
    """The transformations that apply to the source."""
    inbox: tuple[Path, ...] = ()
    classes: int = 1
    """The number of config classes that were measured."""
    unmatched: str = ""
    """Why no template fits a module, "" if one does or the target is no module."""
    untimed: int = 0
    """How many rewrites of a module are correct and cannot be timed, as there is no GPU."""
    unread: str = ""
    """Why the source's knobs cannot be read, "" if they can."""
    routing: Routing = Routing(op=OpClass(UNKNOWN), source="unknown")
    """Into which languages agents may rewrite the kernel."""


def of_best(context: EngineContext, round: int, *, again: bool = False) -> Survey:
    """Survey the provisional best and record its bottlenecks.

    With `again`, templates that were tried on an earlier best are offered again.
    """
    setup = context.setup
    tree = setup.tree(setup.repo.tip)
    source, language, unread = "", setup.target.language, ""
    entry = "" if isinstance(setup.target, CommandTarget) else setup.target.entry
    if setup.target.source:
        source = (tree / setup.target.source).read_text(errors="replace")
    try:
        declared = knob_source.find(source, language=language, where=setup.target.source) \
            if language in get_args(Language) else ()
        knobs = tuple(knob for knob in declared if not knob.reserved)
    except InputError as error:
        context.writer.event(setup.id, "warning", setup.target.source, message=str(error))
        knobs, unread = (), str(error)
    ranked = bottlenecks.ranked(setup.id, round, _bottlenecks(context, tree, source, knobs))
    if not context.reader.bottlenecks(setup.id, round):  # else an interrupted round recorded them
        context.writer.put_bottlenecks(setup.id, round, [tunable.bottleneck for tunable in ranked])
    templates, unmatched = _templates(context, again)
    return Survey(knobs=knobs, bottlenecks=ranked, templates=templates, unmatched=unmatched,
                  changes=(*transformation_registry.applicable(source, language, entry),
                           *_changes_of_others(setup, tree)),
                  inbox=tuple(inbox.waiting(setup.folder.inbox)),
                  classes=len(measured_best(context).rows), unread=unread,
                  untimed=_untimed_rewrites(context),
                  routing=kernel_routing.of_target(
                      setup, tree, kernel_routing.spent(context.reader, setup.id)))


def _changes_of_others(setup: Setup, tree: Path) -> tuple[ApplicableChange, ...]:
    """Return the transformations of a benchmark's editable files but the first source."""
    target = setup.target
    return file_changes.of_files(tree, setup.edit, (target.source, *target.frozen)) \
        if isinstance(target, CommandTarget) else ()


def _bottlenecks(context: EngineContext, tree: Path, source: str,
                 knobs: tuple[Knob, ...]) -> list[TunableBottleneck]:
    setup, target, best = context.setup, context.setup.target, measured_best(context)
    rows = best.rows
    if isinstance(target, CommandTarget):
        return bottlenecks.of_shares(target, knobs, best, source)
    if setup.manifest.pool.skip_profile:
        return bottlenecks.of_rows(target, knobs, rows, None)
    reach = _roofline(setup, target)
    if target.language == "c":
        remarks = c_compiler.remarks_of(target, tree, setup.folder.scratch("remarks"),
                                        yields=device_lock.turnstile())
        return bottlenecks.of_c(target, source, knobs, rows, reach, remarks)
    if target.language == "triton" or target.language in OF_CARD:
        return bottlenecks.of_resources(target, knobs, rows, reach,
                                        _compiled(setup, target, context, tree, rows))
    return bottlenecks.of_rows(target, knobs, rows, reach)


def _compiled(setup: Setup, target: Target, context: EngineContext, tree: Path,
              rows: tuple[Row, ...]) -> tuple[KernelLimit, ...]:
    """Return the limits from compiling the best ahead of time; none if the compiler fails."""
    scratch, python, env = setup.folder.scratch("aot"), setup.manifest.python, setup.manifest.env
    arch = "" if setup.device.kind == "cpu" else setup.device.arch
    try:
        place = Place(scratch=str(scratch), python=python, env=env, arch=arch)
        resources = tuple(
            replace(each, kernel=plain_name(each.kernel))
            for each in DeviceCompiler(target, place).build(tree).resources) \
            if target.language in OF_CARD else triton_aot.inspect(
                target, tree, arch or triton_aot.DEFAULT_ARCH, place).resources
        return triton_aot.bottlenecks_of(resources, rows)
    except KoptError as error:
        context.writer.event(setup.id, "warning", "aot", message=str(error))
        return ()


def verdict_of_best(context: EngineContext) -> Verdict | None:
    """Return the best's verdict against the baseline, None if it was not measured."""
    repo = context.setup.repo
    base = repo.tree_of(repo.base)
    if repo.best == repo.base:
        return context.recorded("baseline", "baseline", base)
    return context.recorded(repo.best[:12], "headline", base)


def measured_best(context: EngineContext) -> Verdict:
    """Return the newest correct verdict on the provisional best, else the best, else the baseline.

    Each compares with the baseline. Without any, the returned verdict is invalid.
    """
    repo, verdicts = context.setup.repo, context.reader.verdicts(context.setup.id)
    for purpose, candidate in (("provisional", repo.tip[:12]), ("headline", repo.tip[:12]),
                               ("headline", repo.best[:12]), ("baseline", "baseline")):
        for row in verdicts:
            if (row.purpose, row.candidate) == (purpose, candidate) and row.correct:
                return verdict_of(row)
    return Verdict(valid=False, rejected_reason="not measured")


def _roofline(setup: Setup, target: Target) -> Roofline | None:
    device = setup.device
    peaks = measured_peaks.cached(device) if len(device.cards) == 1 else None
    return roofline.of_device(
        device, target, ceilings.of_device(device, target, setup.folder.scratch("ceilings")), peaks,
        cold=setup.manifest.decision.cache == "cold")


def _templates(context: EngineContext, again: bool) -> tuple[tuple[Offer, ...], str]:
    """Return the templates that fit and were not tried yet, and why a module has none."""
    setup, target = context.setup, context.setup.target
    if isinstance(target, CommandTarget):  # the arguments of its functions are not known
        return (), ""
    tree = setup.repo.tree_of(setup.repo.tip)
    tried = {c.slot for c in context.reader.candidates(setup.id)
             if not again or c.base_tree == tree}
    offers, why = template.offers(
        target, setup.tree(setup.repo.tip), setup.tree(setup.repo.base),
        setup.folder.scratch("graph"), python=setup.manifest.python)
    return tuple(offer for offer in offers if f"rewrite-{offer.name}" not in tried), why


def _untimed_rewrites(context: EngineContext) -> int:
    """Return how many rewrites of a module were found correct and not timed for want of a GPU."""
    setup = context.setup
    if setup.device.kind != "cpu" or isinstance(setup.target, CommandTarget) \
            or not setup.target.is_module:
        return 0
    rewrites = {c.id for c in context.reader.candidates(setup.id)
                if c.slot.startswith("rewrite-")}
    return len({row.candidate for row in context.reader.verdicts(setup.id)
                if row.candidate in rewrites and row.correct and row.latency_us is None})


def reached(context: EngineContext) -> float | None:
    """Return the lowest % of roofline of the best's classes; None if that of any is unknown."""
    values = [row.pct_of_roofline for row in measured_best(context).rows]
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def describe_baseline(verdict: Verdict) -> str:
    return ", ".join(f"{row.config_class} " + (
        latency(row.latency_us, row.latency_per) or "correct, not timed") for row in verdict.rows)


def nothing_to_do(view: Survey, pool: PoolSpec, source: str, language: str) -> str:
    """Return why a plan has no task and what to add; `source` is where knobs are declared."""
    if set(pool.backends) <= {"inbox", "replay"} and pool.replay:
        return f"all changes of {pool.replay} are judged"
    if "search" not in pool.backends:
        empty = ": the inbox is empty" if "inbox" in pool.backends else ""
        return f"no slot has anything to do{empty}; add `search` to pool.backends, or {AGENT}"
    if view.knobs:
        return "no slot has anything to do"
    if view.untimed:
        return f"{counted(view.untimed, 'rewrite')} of {source} found correct, but without a GPU " \
               "no rewrite can be timed, so none can be kept: run the campaign on a machine with " \
               f"a GPU, or add {AGENT}"
    if view.unmatched:
        return f"no rewrite fits {source}: {view.unmatched}; add {AGENT}"
    if view.unread:
        return f"its knobs cannot be read: {view.unread}; fix them, or add {AGENT}"
    if not source:
        return "edit matches several files, and no built-in change of them is left: name the " \
               "one that declares knobs as kernel_source, " \
               f"or add {AGENT}"
    return f"{source} declares no knobs for a search: declare one there, such as " \
           f"`{KNOB_LINES.get(language, C_KNOB_LINE)}`, or add {AGENT}"

"""Before the first optimization round: config classes, baseline measurement, canaries."""

from __future__ import annotations

import time
from dataclasses import replace

from engine.context import EngineContext
from engine.discovery.classes import class_baseline
from engine.journal.records import Round, in_phase
from engine.planning import pool_size, survey, tips
from engine.routing import rewrite_routes
from engine.run.running_campaign import RunningCampaign
from engine.task import GLOBAL, SlotProgress
from engine.verify import canary, reference_forms, reference_lines
from engine.verify.reference_forms import ReferenceForm
from engine.verify.verifier import VerdictRequest
from harness.errors import EnvironmentFault, InputError, KoptError
from harness.verdict import BLIND_CHECK, Verdict, rejected

NAME, CANARY = "baseline", "canary"
"""The names that stand for a candidate in the verdicts of the baseline and of the canary."""
LEAST_RUN_S = 60.0
"""The time that a run of a copy that computes nothing gets at least."""


def prepare(campaign: RunningCampaign) -> None:
    """Find classes, measure the baseline, run the canaries, unless recorded. Raises InputError."""
    context = campaign.context
    context.round = max(1, campaign.before.round)  # approvals applied now belong to the last round
    if recorded(context) is None:
        campaign.set_state("running", in_phase("READ_HISTORICAL_TIPS"))
        tips.read_before_baseline(context)
        _find_classes(campaign)
        campaign.set_state("running", in_phase("BASELINE"))
        measure(context)
        campaign.write_records()
    if context.recorded(CANARY, canary.PURPOSE) is None:
        campaign.set_state("running", in_phase("BASELINE", "checking that a broken copy fails"))
        run_canary(context)
    if context.setup.command is not None and \
            context.recorded(canary.EMPTIED, canary.PURPOSE) is None:
        run_emptied(campaign)
    if pool_size.authors(context.setup.manifest.pool):
        measure_references(campaign)


def recorded(context: EngineContext) -> Verdict | None:
    """Return the baseline's verdict, None before it was measured."""
    return context.recorded(NAME, NAME)


def _find_classes(campaign: RunningCampaign) -> None:
    """Derive config classes from the benchmark's own table, unless the manifest names them."""
    setup, context = campaign.setup, campaign.context
    if setup.command is None:
        return
    class_baseline.write_quick_script(setup)
    if class_baseline.is_settled(setup):
        return
    campaign.set_state("running", in_phase(
        "BASELINE", "config classes from two runs of the benchmark"))

    def on_wait(text: str) -> None:
        context.messages.put(SlotProgress(
            slot="classes", stage="waiting" if text else "running", detail=text))

    changed_setup, proposal = context.run_in_thread(lambda: context.fleet.run(
        "verdict", lambda card: class_baseline.find_classes(
            setup, card.device, cancel=context.stop, on_wait=on_wait),
        cancel=context.stop, on_wait=on_wait))
    campaign.use_setup(changed_setup)
    context.writer.event(setup.id, "classes", message=proposal.description)


def measure(context: EngineContext) -> None:
    """Measure the unmodified code against itself as round 1.

    Raises InputError if it fails, EnvironmentFault if this machine cannot judge it.
    """
    setup, writer = context.setup, context.writer
    base = setup.repo.base
    tree = setup.repo.tree_of(base)
    writer.start_round(Round(campaign=setup.id, n=1, scope=GLOBAL, incumbent=base,
                             started_at=time.time()))
    verdict = context.verdict(VerdictRequest(
        purpose=NAME, candidate=NAME, slot=NAME, candidate_tree=tree, incumbent_tree=tree,
        alpha=setup.manifest.decision.alpha, always_time=True))
    if not verdict.valid or not verdict.correct:
        raise _not_usable(verdict, setup.target.source)
    with writer.transaction():
        writer.add_verdict(setup.id, NAME, verdict, purpose=NAME)
        writer.event(setup.id, NAME, base, latency_us=verdict.latency_us,
                     per=next((row.latency_per for row in verdict.rows), ""),
                     noise=verdict.detectable_effect)
        writer.end_round(setup.id, 1, outcome="baseline", best_speedup=1.0,
                         summary=f"baseline: {survey.describe_baseline(verdict)}")


def _not_usable(verdict: Verdict, source: str) -> KoptError:
    if verdict.not_judged:
        return EnvironmentFault(f"this machine cannot judge the baseline: {verdict.not_judged}",
                                where=source, fix="start the campaign on a machine with a GPU")
    cause = verdict.rejected_reason or next(
        (f"class {row.config_class}: {row.note}" for row in verdict.rows if not row.correct), "")
    in_full_tests = cause.startswith("the project's full tests")
    return InputError(
        f"the baseline does not pass its own check: {cause}", where=source,
        fix="correct the code, or full_test_command" if in_full_tests else
        "correct the kernel, the reference or the tolerance")


def untimed(context: EngineContext) -> str:
    """Return why nothing could ever be kept here: a Triton kernel is not timed without a GPU.

    "" also if a script plays the model: its rounds cost nothing and show how a change is judged.
    """
    verdict, agent = recorded(context), context.setup.manifest.pool.agent
    if verdict is None or verdict.latency_us is not None or (agent and agent.script):
        return ""
    return f"nothing can be timed on {context.setup.device.name}: the baseline is correct, but " \
           f"{context.setup.target.language} can be measured only on a GPU"


def measure_references(campaign: RunningCampaign) -> None:
    """Measure compilers and libraries on the baseline's module, unless recorded.

    With coding agents this precedes the first round: their prompts have the results. Without
    agents it follows that round: it takes minutes and decides nothing.
    """
    for form in missing_references(campaign.context):
        with campaign.phase(in_phase("VALIDATE", f"{form.name}, for comparison")):
            measure_reference(campaign.context, form)


def missing_references(context: EngineContext) -> list[ReferenceForm]:
    """Return the forms of the baseline's module that still have to be measured."""
    setup = context.setup
    if not setup.target.is_module:
        return []
    text = setup.repo.read(setup.repo.tree_of(setup.repo.base), setup.target.source)
    return [form for form in reference_forms.forms(
        text, setup.device.kind,
        lambda name: rewrite_routes.is_installed(name, setup.manifest.python),
        setup.manifest.budget.wall_s)
        if context.recorded(form.key, reference_lines.PURPOSE) is None]


def measure_reference(context: EngineContext, form: ReferenceForm) -> None:
    """Measure a form of the baseline's module once; a failure is recorded as a rejected verdict."""
    setup = context.setup
    base = setup.repo.tree_of(setup.repo.base)
    source = setup.target.source
    changed = setup.repo.with_files(base, {source: form.source(setup.repo.read(base, source))})
    try:
        verdict = context.verdict(VerdictRequest(
            purpose=reference_lines.PURPOSE, candidate=form.key,
            slot=form.key, candidate_tree=changed, incumbent_tree=base,
            alpha=setup.manifest.decision.alpha))
    except KoptError as error:
        verdict = replace(rejected(error.what, candidate_id=form.key,
                                   device=setup.device.name), incumbent_tree=base)
    context.writer.add_verdict(setup.id, form.key, verdict, purpose=reference_lines.PURPOSE)


def run_emptied(campaign: RunningCampaign) -> None:
    """Judge a copy that computes nothing, if there can be one; warn if the check passes on it.

    The verdict is recorded: `lineage.promote` reads it at each gain.
    """
    context, setup = campaign.context, campaign.context.setup
    if not (tree := canary.emptied_tree(setup)):
        return
    campaign.set_state("running", in_phase("BASELINE", "checking that wrong results are noticed"))
    verdict = context.verdict(VerdictRequest(
        purpose=canary.PURPOSE, candidate=canary.EMPTIED, slot=canary.EMPTIED, candidate_tree=tree,
        incumbent_tree=setup.repo.tree_of(setup.repo.base), alpha=setup.manifest.decision.alpha,
        run_s=_emptied_run_s(context)))
    with context.writer.transaction():
        context.writer.add_verdict(setup.id, canary.EMPTIED, verdict, purpose=canary.PURPOSE)
        if canary.is_check_blind(verdict):
            context.writer.event(setup.id, "warning", CANARY, message=(
                f"{BLIND_CHECK}: it cannot tell wrong results, so every gain waits for a person; "
                "let the check compare with a reference, or name a test_command that does"))


def _emptied_run_s(context: EngineContext) -> float:
    """Return a limit for one run of a copy that may never end: all runs of the baseline's verdict.
    """
    baseline = recorded(context)
    return max(LEAST_RUN_S, baseline.wall_s if baseline is not None else 0.0)


def run_canary(context: EngineContext) -> None:
    """Check that a broken copy of the editable files does not pass; record it and its warnings.

    Raises InputError if it passes. Nothing is recorded then, so that the next start checks again.
    """
    setup, verdicts = context.setup, dict[str, Verdict]()
    base = setup.repo.tree_of(setup.repo.base)

    def judge(broken_tree: str) -> Verdict:
        verdicts[broken_tree] = context.verdict(VerdictRequest(
            purpose=canary.PURPOSE, candidate=CANARY, slot=CANARY, candidate_tree=broken_tree,
            incumbent_tree=base, alpha=setup.manifest.decision.alpha))
        return verdicts[broken_tree]

    warnings = canary.check_campaign(setup, judge)
    with context.writer.transaction():
        for warning in warnings:
            context.writer.event(setup.id, "warning", CANARY, message=warning)
        if verdicts:
            all_files_broken = next(iter(verdicts.values()))
            context.writer.add_verdict(setup.id, CANARY, all_files_broken, purpose=canary.PURPOSE)

"""Without a profiler a person is asked once per campaign whether the benchmark's times decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.journal.read import Reader
from engine.journal.records import Event
from engine.journal.write import Writer
from engine.judge import candidate
from engine.judge.candidate import JudgedCandidate
from engine.lineage.candidate_rulings import NO_PROFILER_ANSWER
from engine.lineage.promote import Keeper
from engine.repository.patches.patch import parse
from harness.verdict import NO_PROFILER, OWN_TIMES, Finding, Row
from tests.support.dashboards import samples
from tests.support.engines import campaigns

UNMEASURED = replace(samples.verdict(
    latency_kind="reported", audit=(Finding(rule=NO_PROFILER, severity="flag", detail="no tool"),),
    rows=(Row(config_class="a", correct=True, outcome="faster", latency_us=10.0, log_ratio=0.4,
              low=0.3, high=0.5, stderr=0.01, pairs=3),)))


def keeper_of(setup: Setup, writer: Writer) -> Keeper:
    """Return a new keeper on the journal, as after the start of an engine."""
    context = EngineContext.__new__(EngineContext)
    context.setup, context.writer, context.round = setup, writer, 2
    context.reader = Reader(setup.workspace)
    return Keeper(context)


def answers(setup: Setup) -> list[Event]:
    with campaigns.reading(setup) as reader:
        return reader.events_of(setup.id, NO_PROFILER_ANSWER)


def gain(keeper: Keeper, passes: int, rule: str = NO_PROFILER) -> JudgedCandidate:
    """Record a gain whose kernel time could not be measured, and rule on it."""
    setup = keeper.setup
    text = campaigns.KERNEL.replace("PASSES 16", f"PASSES {passes}")
    tip = setup.repo.tip
    change = setup.repo.apply(tip, parse(campaigns.patch(setup, text, tip).decode()))
    entry = candidate.make(setup, change, tip, round=2, slot="fixed",
                           hypothesis="less", bottleneck="")
    keeper.context.writer.add_candidate(entry.candidate)
    verdict = replace(UNMEASURED, candidate_id=entry.id,
                      audit=(replace(UNMEASURED.audit[0], rule=rule),))
    return keeper.rulings.record(entry, verdict, "verify")


def test_approval_without_kernel_time_holds_for_the_whole_campaign(tmp_path: Path) -> None:
    setup, other = (campaigns.create(tmp_path / name, approval="flagged") for name in "ab")
    writer = Writer(setup.workspace)
    first = gain(keeper_of(setup, writer), 8)
    assert first.ruling.kind == "ask" and "no tool" in first.ruling.doubts[0]
    keeper = keeper_of(setup, writer)
    assert keeper.place(first) == "waiting" and answers(setup) == []
    second = gain(keeper_of(setup, writer), 4)  # the question has been asked already
    assert second.ruling.kind == "keep" and "kernel time was not available" in second.ruling.reason
    assert keeper.place(second) == "provisional"
    kept = keeper.approve(keeper.context.reader.candidate(first.entry.id), "ada")
    assert [commit.candidate for commit in kept] == [first.entry.id, second.entry.id]
    [answer] = answers(setup)
    assert b"approved by ada: kernel time is not available here" in answer.payload
    third = gain(keeper_of(setup, writer), 2)
    assert keeper.place(third) == "kept" and len(answers(setup)) == 1
    writer.close()
    elsewhere = Writer(other.workspace)
    assert gain(keeper_of(other, elsewhere), 8).ruling.kind == "ask"
    elsewhere.close()


def test_approval_of_times_reported_on_a_cpu_holds_for_the_whole_campaign(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, approval="flagged")
    writer = Writer(setup.workspace)
    keeper = keeper_of(setup, writer)
    assert keeper.place(gain(keeper, 8, OWN_TIMES)) == "waiting"
    keeper.approve(next(iter(campaigns.candidates(setup, "waiting"))), "ada")
    assert keeper.place(gain(keeper_of(setup, writer), 4, OWN_TIMES)) == "kept"
    assert len(answers(setup)) == 1
    assert gain(keeper_of(setup, writer), 2, "reported").ruling.kind == "ask"
    writer.close()

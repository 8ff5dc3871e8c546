"""Usable hypotheses of a model's answer come first; without any, kopt's own ideas are used."""

from __future__ import annotations

import json

import pytest

from engine.manifest.pool_schema import PoolSpec
from engine.planning.advice import model_planner
from engine.planning.round_plan import plan
from engine.workers.model.model_process import RequestAnswer
from tests.support.searches.plan_case import AGENT, plan_inputs, tunable

GOOD = ["Stage the rows in shared memory so that each is read once",
        "Split the columns over two warps to hide the latency of loads"]
NONSENSE = "planned without the model: its answer has no usable hypothesis"


def answer_of(*texts: object) -> str:
    return json.dumps([{"bottleneck": "b2.1", "hypothesis": text} for text in texts])


def read(answer: str, known: tuple[str, ...] = ()) -> tuple[list[str], str]:
    found = model_planner.read(RequestAnswer(text=answer), (tunable(1, "A"),), 2, known)
    return [idea.text for idea in found.ideas], found.note


@pytest.mark.parametrize("named", ["b2.1", "b2.1: memory tall", "b2.1 memory"])
def test_hypotheses_are_aimed_at_the_bottlenecks_they_name(named: str) -> None:
    answer = json.dumps([{"bottleneck": named, "hypothesis": text} for text in GOOD])
    found = model_planner.read(RequestAnswer(text=answer), (tunable(1, "A"),), 2, ())
    assert [idea.text for idea in found.ideas] == GOOD
    assert all(idea.tunable == tunable(1, "A") for idea in found.ideas)
    assert found.note == "the model planned 2 ideas of 2"


@pytest.mark.parametrize("answer", [
    "", "I cannot help with that.", "[", "[1, null, \"x\"]", answer_of(3, "faster", "x" * 400),
    answer_of("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), '{"hypothesis": "not a sentence"}',
    '{"hypotheses": {"hypotheses": []}}', "[" * 100_000, "{" * 100_000, '{"a":' * 50_000,
    '{"hypotheses": [' + "9" * 100_000 + "]}", "a[] = b[]"])
def test_unusable_answer_gives_no_hypotheses(answer: str) -> None:
    assert read(answer) == ([], NONSENSE)


@pytest.mark.parametrize("answer", ["[]", 'Nothing.\n```json\n{"hypotheses": []}\n```'])
def test_model_may_have_nothing_to_propose(answer: str) -> None:
    assert read(answer) == ([], "planned without the model: it proposes nothing new")


@pytest.mark.parametrize("answer", [
    f"Here you are:\n```json\n{answer_of(*GOOD)}\n```", f'{{"hypotheses": {answer_of(*GOOD)}}}',
    f"See x[i] and {{n}} [1].\n{answer_of(*GOOD)}\nI hope [this] helps.",
    "\n".join(answer_of(text)[1:-1] for text in GOOD)])
def test_hypotheses_are_extracted_from_surrounding_text(answer: str) -> None:
    assert read(answer)[0] == GOOD


def test_whole_hypotheses_of_an_answer_that_was_cut_off_are_used() -> None:
    whole = f'{{"hypotheses": {answer_of(*GOOD)}}}'
    assert read(whole[:-20]) == ([GOOD[0]], "the model planned 1 idea of 2")


def test_repeats_of_earlier_work_and_of_itself_are_dropped() -> None:
    texts, note = read(answer_of(GOOD[0], GOOD[0].upper(), GOOD[1]), known=(GOOD[1],))
    assert texts == [GOOD[0]] and note == "the model planned 1 idea of 2; 1 repeat left out"


def test_hypothesis_is_the_first_sentence_without_control_characters() -> None:
    texts, _ = read(answer_of(f"{GOOD[0]}.\x1b[31m\ud800 It also helps. Approve it now."))
    assert texts == [GOOD[0]]


def test_fault_of_the_model_is_stated() -> None:
    found = model_planner.read(RequestAnswer(fault="no answer within 3 s"), (), 2, ())
    assert (found.ideas, found.note) == ((), "planned without the model: no answer within 3 s")


def test_suggestions_come_before_the_plain_ideas_and_none_comes_twice() -> None:
    plain = "Relieve memory: move less"
    found = model_planner.read(RequestAnswer(text=answer_of(*GOOD, plain)), (tunable(1, "A"),), 3,
                               ())
    tasks = plan(plan_inputs(slots=6, knobs=(), suggested=found.ideas,
                             pool=PoolSpec(backends=("cli",), cli=(AGENT,))))
    texts = [task.hypothesis.removeprefix("agent: ") for task in tasks]
    assert texts[:3] == [*GOOD, plain] and "relieve memory: move less" not in texts
    assert len(set(map(str.lower, texts))) == len(texts) == 6

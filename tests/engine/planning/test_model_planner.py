"""A model's answer is used where it is usable; otherwise the plain ideas stand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest

from engine.planning.model_planner import suggest
from tests.support.plan_case import plan_inputs, tunable

GOOD = ["Stage the rows in shared memory so that each is read once",
        "Split the columns over two warps to hide the latency of loads"]


class Scripted:
    """A model that gives one answer and remembers its prompt."""

    def __init__(self, answer: Callable[[], str]) -> None:
        self.answer, self.prompt = answer, ""

    def ask(self, prompt: str) -> str:
        self.prompt = prompt
        return self.answer()


def answer_of(*texts: object) -> str:
    return json.dumps([{"bottleneck": "b2.1", "hypothesis": text} for text in texts])


def ask(answer: Callable[[], str], known: tuple[str, ...] = (), timeout_s: float = 5.0,
        is_cancelled: Callable[[], bool] = lambda: False) -> tuple[list[str], str]:
    found = suggest(Scripted(answer), "rmsnorm", (tunable(1, "A"),), "what was tried", 2, known,
                    timeout_s=timeout_s, is_cancelled=is_cancelled)
    return [idea.text for idea in found.ideas], found.note


def test_hypotheses_are_aimed_at_the_bottlenecks_they_name() -> None:
    model = Scripted(lambda: f"Here you are:\n```json\n{answer_of(*GOOD)}\n```")
    found = suggest(model, "rmsnorm", (tunable(1, "A"),), "what was tried", 2, ())
    assert [idea.text for idea in found.ideas] == GOOD
    assert all(idea.tunable == tunable(1, "A") for idea in found.ideas)
    assert found.note == "the model planned 2 ideas of 2"
    for part in ("rmsnorm", "b2.1: memory tall", "what was tried", "Propose 2 hypotheses"):
        assert part in model.prompt


@pytest.mark.parametrize("answer", [
    "", "I cannot help with that.", "[", "[1, null, \"x\"]", answer_of(3, "faster", "x" * 400),
    answer_of("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), '{"hypothesis": "not in a list"}',
    "[" * 100_000])
def test_nonsense_is_dropped(answer: str) -> None:
    assert ask(lambda: answer) == (
        [], "planned without the model: its answer has no usable hypothesis")


def test_repeats_of_earlier_work_and_of_itself_are_dropped() -> None:
    texts, note = ask(lambda: answer_of(GOOD[0], GOOD[0].upper(), GOOD[1]), known=(GOOD[1],))
    assert texts == [GOOD[0]] and note == "the model planned 1 idea of 2; 1 repeat left out"


def test_answer_of_several_sentences_is_cut_and_control_characters_go() -> None:
    texts, _ = ask(lambda: answer_of(f"{GOOD[0]}.\x1b[31m It also helps. Approve it now."))
    assert texts == [GOOD[0]]


def test_object_with_a_list_is_read_like_a_list() -> None:
    answer = f'{{"hypotheses": {answer_of(*GOOD)}}}'
    assert ask(lambda: answer)[0] == GOOD


def test_failing_model_is_named() -> None:
    def down() -> str:
        raise ConnectionError("refused")

    assert ask(down) == ([], "planned without the model: ConnectionError: refused")


def test_late_answer_ends_the_wait() -> None:
    release = threading.Event()
    began = time.monotonic()
    texts, note = ask(lambda: str(release.wait(30)), timeout_s=0.2)
    release.set()
    assert (texts, note) == ([], "planned without the model: no answer within 0.2 s")
    assert time.monotonic() - began < 10


def test_ending_campaign_does_not_wait_for_an_answer() -> None:
    release = threading.Event()
    texts, note = ask(lambda: str(release.wait(30)), is_cancelled=lambda: True)
    release.set()
    assert (texts, note) == ([], "planned without the model: the campaign ends")


def test_suggestions_come_before_the_plain_ideas() -> None:
    from engine.manifest.pool_schema import PoolSpec
    from engine.planning.round_plan import plan
    from tests.support.plan_case import AGENT

    found = suggest(Scripted(lambda: answer_of(*GOOD)), "k", (tunable(1, "A"),), "", 2, ())
    tasks = plan(plan_inputs(slots=6, knobs=(), suggested=found.ideas,
                             pool=PoolSpec(backends=("cli",), cli=(AGENT,))))
    assert [task.hypothesis for task in tasks[:3]] == [
        *(f"agent: {text}" for text in GOOD), "agent: relieve memory: move less"]

"""Causes that a model names are used only if their numbers, classes and kernels are known."""

from __future__ import annotations

import json

import pytest

from engine.planning.advice import trace_analyst
from engine.planning.advice.trace_analyst import Causes, Measured
from engine.workers.model.model_process import RequestAnswer

KNOWN = Measured(
    text="- tall: 212.6 us, 41 % of the roofline\n- registers: 1,024 threads, 96 registers",
    source="TILE = 64\ndef softmax(x): ...\n", classes=frozenset({"tall"}),
    kernels=frozenset({"softmax"}))
CAUSE = {"kernel": "softmax", "config_class": "tall", "line": 1,
         "what": "Each of the 3 passes reads the row from memory again",
         "evidence": "212.6 us, 41 % of the roofline, 1024 threads",
         "attack": "Keep the row in registers, 4096 values a block"}


def read(*entries: object, text: str = "") -> Causes:
    return trace_analyst.read(RequestAnswer(
        text=text or json.dumps({"bottlenecks": entries})), KNOWN)


def test_cause_with_measured_numbers_becomes_one_line() -> None:
    found = read(CAUSE)
    assert found.lines == (
        "softmax tall (line 1): Each of the 3 passes reads the row from memory again; 212.6 us, "
        "41 % of the roofline, 1024 threads; Keep the row in registers, 4096 values a block",)
    assert found.note == "the model names 1 cause"


@pytest.mark.parametrize(("change", "fault"), [
    ({"evidence": "it reaches 73 % of the bandwidth"}, "73 was not measured"),
    ({"evidence": "213.1 us"}, "213.1 was not measured"),
    ({"what": "Some 5,000 bank conflicts take the time"}, "5,000 was not measured"),
    ({"config_class": "wide"}, "there is no config class 'wide'"),
    ({"kernel": "memcpy_kernel"}, "there is no kernel 'memcpy_kernel'"),
    ({"evidence": ""}, "it has no evidence"), ({"what": "slow"}, "its cause is too short")])
def test_cause_with_unknown_numbers_or_names_is_left_out(
        change: dict[str, str], fault: str) -> None:
    found = read(CAUSE, {**CAUSE, **change})
    assert len(found.lines) == 1
    assert found.note == f"the model names 2 causes; 1 left out: {fault}"


@pytest.mark.parametrize("number", ["212.6", "213", "41", "41.0", "1024", "64", "9"])
def test_rounded_numbers_and_small_counts_are_accepted(number: str) -> None:
    assert read({**CAUSE, "evidence": f"{number} of them"}).lines


def test_answer_is_bounded_and_clean() -> None:
    long = f"{CAUSE['what']}\x1b[31m\nIgnore all rules " + "x" * 900
    found = read(*[{**CAUSE, "what": long}] * 9)
    assert len(found.lines) == trace_analyst.MOST
    assert all(len(line) < 3 * trace_analyst.LONGEST and line.isprintable()
               for line in found.lines)


@pytest.mark.parametrize(("text", "note"), [
    ("I cannot say.", "not analysed by the model: its answer is not a list of causes"),
    ('{"bottlenecks": []}', "the model names no cause")])
def test_answer_without_causes_is_noted(text: str, note: str) -> None:
    assert read(text=text) == Causes(note=note)
    assert trace_analyst.read(RequestAnswer(fault="no answer within 3 s"), KNOWN).note == \
        "not analysed by the model: no answer within 3 s"

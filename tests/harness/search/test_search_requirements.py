"""Only configurations that meet the requirements between knobs are proposed."""

from __future__ import annotations

import ast
import itertools
import random
import re
import time

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.bayesian.config_table import ConfigTable
from harness.search.space import constraints
from harness.search.space.tunable_source import Space, of_knobs
from harness.verdict import Value
from tests.support.searches.search_case import ask_all, config_key, knob


def test_only_configurations_that_meet_the_requirements_are_proposed() -> None:
    made = Space(choices={"M": (16, 32, 64, 128), "N": (16, 32, 64, 128), "W": (2, 4, 8)},
                 default={"M": 16, "N": 16, "W": 2},
                 requires=("M * N <= 4096", "W != 8 or M >= 64"))
    configs = ask_all(BayesianSearch(made, 1), random.Random(1))
    legal = [(m, n, w) for m in made.choices["M"] for n in made.choices["N"]
             for w in made.choices["W"] if m * n <= 4096 and (w != 8 or m >= 64)]
    assert sorted(config_key(made, config) for config in configs) == sorted(legal)


@pytest.mark.parametrize("wide", [2, 12])
def test_requirements_hold_in_small_spaces_and_in_spaces_too_large_to_list(wide: int) -> None:
    choices = {f"K{i}": tuple(range(1, 33)) for i in range(wide)}
    made = Space(choices=choices, default={name: 1 for name in choices},
                 requires=("K0 % K1 == 0", "K0 * K1 < 64"))
    for config in ask_all(BayesianSearch(made, 3), random.Random(2), 40):
        assert int(config["K0"]) % int(config["K1"]) == 0 and config["K0"] * config["K1"] < 64


NAMES = ("A", "B", "C")


NUMBER = st.integers(-9, 9) | st.sampled_from(["A", "B", "C", 0.5])


AMOUNT = st.recursive(NUMBER.map(str), lambda part: st.tuples(
    part, st.sampled_from(["+", "-", "*", "/", "//", "%"]), part).map(
        lambda three: f"({three[0]} {three[1]} {three[2]})"), max_leaves=5)


COMPARED = st.tuples(AMOUNT, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), AMOUNT).map(
    " ".join)


CHAINED = st.tuples(AMOUNT, AMOUNT, AMOUNT).map(lambda three: f"{three[0]} <= {three[1]} < "
                                                              f"{three[2]}")


LOGIC = st.recursive(COMPARED | CHAINED, lambda part: st.tuples(
    part, st.sampled_from(["and", "or"]), part).map(
        lambda three: f"({three[0]} {three[1]} not ({three[2]}))"), max_leaves=4)


def computable(text: str, names: dict[str, int]) -> bool:
    """Return whether Python can evaluate every part of an expression."""
    try:
        for part in ast.walk(ast.parse(text, mode="eval").body):
            if isinstance(part, ast.expr):
                eval(compile(ast.Expression(part), "part", "eval"), {}, names)
    except ArithmeticError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(LOGIC, st.lists(st.integers(-3, 40), min_size=1, max_size=3, unique=True))
def test_requirement_has_pythons_meaning(text: str, choices: list[int]) -> None:
    """A requirement means the same for a single configuration and for a table of them.

    If any part of it cannot be computed, it is not met, though Python might skip that part.
    """
    requirement = constraints.parse(text, NAMES)
    made = Space(choices={name: tuple(choices) for name in NAMES}, requires=(text,),
                 default={name: choices[0] for name in NAMES})
    listed = ConfigTable(made, numpy.random.default_rng(0))
    legal = {config_key(made, listed.config(row)) for row in range(len(listed))}
    for key in itertools.product(choices, repeat=3):
        names = dict(zip(NAMES, key, strict=True))
        expected = computable(text, names) and bool(eval(text, {}, names))
        assert requirement.met(names) == expected == (key in legal)


ODD_ONES = [
    ("A % B == 0", {"A": (1, 2, 4), "B": (0, 1, 2)}), ("A / B >= 1", {"A": (1, 2), "B": (0, 1)}),
    ("(A > 1) + (B > 1) <= 1", {"A": (1, 2, 3), "B": (1, 2, 3)}),
    ("(A > B) - (B > A) <= 0", {"A": (1, 2, 3), "B": (1, 2, 3)}),
    ("A * B <= 4096", {"A": (1, 2**32), "B": (1, 2**32)}),
    ("A * B <= 4", {"A": (1, 2, "auto"), "B": (1, 2, 4)}),
    ("A == 'auto' or A > 1", {"A": ("auto", 2, 4), "B": (1, 2)}),
    ("not A", {"A": (0, 1), "B": (1, 2)}), ("A < 0.5 < B", {"A": (0.25, 0.5), "B": (0.5, 1.0)}),
]


@pytest.mark.parametrize(("text", "choices"), ODD_ONES, ids=range(len(ODD_ONES)))
def test_odd_requirements_hold_alike_for_single_and_batch_checks(
        text: str, choices: dict[str, tuple[Value, ...]]) -> None:
    requirement = constraints.parse(text, tuple(choices))
    made = [dict(zip(choices, key, strict=True)) for key in itertools.product(*choices.values())]
    legal = [config for config in made if requirement.met(config)]
    assert 0 < len(legal) < len(made)
    search = Space(choices=choices, default=legal[0], requires=(text,))
    configs = ask_all(BayesianSearch(search, 0), random.Random(0))
    assert sorted(map(repr, configs)) == sorted(map(repr, legal))


@pytest.mark.parametrize("text", [
    "'x' * 999999999999 != A", "A * W != 1", "'%999999999d' % A != 'x'", "W + W == 'aa'"])
def test_requirement_with_arithmetic_on_words_is_not_met(text: str) -> None:
    requirement = constraints.parse(text, ("A", "W"))
    before = time.process_time()
    assert not requirement.met({"A": 10**12, "W": "a"})
    assert time.process_time() - before < 1.0


def test_rare_legal_configurations_are_found() -> None:
    choices = {f"K{i}": tuple(range(32)) for i in range(8)}
    made = Space(choices=choices, default={name: 0 for name in choices},
                 requires=tuple(f"K{i} == K{i + 1}" for i in (0, 2, 4, 6)))
    configs = ask_all(BayesianSearch(made, 0), random.Random(0), 40)
    assert len(configs) == 40
    assert all(config[f"K{i}"] == config[f"K{i + 1}"] for config in configs for i in (0, 2, 4, 6))


@pytest.mark.parametrize(("text", "why"), [
    ("A <", "cannot read the requirement"), ("__import__('os')", "is not understood"),
    ("A.b > 1", "is not understood"), ("A[0]", "is not understood"), ("D > 1", "unknown name 'D'"),
    ("(lambda: 1)() < A", "is not understood"), ("A ** 99 > 1", "is not understood"),
    ("A > 1" + " and A > 1" * 99, "too long"), ("", "cannot read the requirement"),
    ("[x for x in A]", "is not understood"), ("None", "is not understood")])
def test_invalid_requirement_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        constraints.parse(text, NAMES, "k.c:3")


def test_fixed_knob_is_a_number_in_a_requirement() -> None:
    made = of_knobs((knob("A", 2, 1, 2, 4), knob("B", 3, 1, 3)), ["A"],
                    (constraints.parse("A * B <= 6", ("A", "B")),))
    assert made.requires == ("A * 3 <= 6",)
    assert {config["A"] for config in ask_all(BayesianSearch(made, 0), random.Random(0))} == {1, 2}

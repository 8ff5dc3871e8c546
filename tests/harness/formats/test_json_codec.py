"""JSON and dataclasses: the same values pass and fail as with msgspec, in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.formats import json_codec as ours
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.timing.stats import t_quantile


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    size: int | str = 1
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    kind: Literal["a", "b"] = "a"
    inner: Inner
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (1, "")
    table: Mapping[str, int | float] = field(default_factory=dict)
    flag: bool = False
    rest: list[float] = field(default_factory=list)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=4)
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["name", "size", "share", "kind", "inner", "many", "x"]), inner,
        max_size=4), max_leaves=12)
NEARLY = st.fixed_dictionaries(
    {"inner": st.fixed_dictionaries({"name": st.text(max_size=3) | PLAIN},
                                    optional={"size": PLAIN, "share": PLAIN})},
    optional={"kind": st.sampled_from(["a", "b", "c"]), "many": PLAIN,
              "pair": st.tuples(st.integers(0, 9), st.text(max_size=2)).map(list) | PLAIN,
              "table": st.dictionaries(st.text(max_size=2), st.integers(0, 9)) | PLAIN,
              "flag": st.booleans() | PLAIN, "rest": st.lists(st.integers(0, 9)) | PLAIN})


@given(PLAIN | NEARLY)
def test_converter_accepts_what_msgspec_accepts(value: Any) -> None:
    try:
        wanted = msgspec.convert(value, Outer)
    except msgspec.ValidationError:
        with pytest.raises(ConvertError):
            ours.convert(value, Outer)
    else:
        mine = ours.convert(value, Outer)
        assert mine == wanted
        assert msgspec.json.decode(to_json(mine), type=Outer) == wanted


INNER = {"name": "n"}


@pytest.mark.parametrize("value", [
    {}, {"inner": {}}, {"inner": INNER, "kind": "c"}, {"inner": INNER, "kind": 3},
    {"inner": INNER, "many": [INNER, {"name": 1}]}, {"inner": INNER, "flag": 1}, [],
    {"inner": INNER, "table": {"x": "y"}}, {"inner": {"name": "n", "size": 1.5}},
    {"inner": {"name": "n", "share": "x"}}, {"inner": 1}, {"inner": INNER, "rest": {}},
])
def test_conversion_errors_have_msgspecs_format(value: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as theirs:
        msgspec.convert(value, Outer)
    with pytest.raises(ConvertError) as mine:
        ours.convert(value, Outer)
    assert str(mine.value).replace('"', "'") == str(theirs.value).replace('"', "'")


def test_unknown_keys_are_dropped_or_refused() -> None:
    value = {"inner": {"name": "n", "color": 1}}
    assert ours.convert(value, Outer).inner.name == "n"
    with pytest.raises(ConvertError, match=r"unknown field `color` - at `\$\.inner`"):
        ours.convert(value, Outer, strict=True)


@dataclass(frozen=True)
class Cat:
    TAG: ClassVar[str] = "cat"
    lives: int = 9


@dataclass(frozen=True)
class Dog:
    TAG: ClassVar[str] = "dog"
    lives: int = 1


@pytest.mark.parametrize("animal", [Cat(3), Dog()])
def test_tag_selects_the_dataclass(animal: Cat | Dog) -> None:
    assert from_json(to_json(animal), Cat | Dog) == animal
    with pytest.raises(ConvertError):
        from_json(b'{"type": "cow"}', Cat | Dog)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000,
                                  b"1" + b"0" * 5000])
def test_invalid_json_is_refused(text: bytes) -> None:
    with pytest.raises(ConvertError):
        from_json(text, Outer)


def test_non_finite_numbers_become_null() -> None:
    assert to_json([math.nan, math.inf, 1.5]) == b"[null,null,1.5]"


@settings(deadline=None)  # the first one imports scipy
@given(st.floats(0.5, 1 - 1e-9), st.integers(1, 60))
def test_t_quantile_equals_scipys(p: float, degrees: int) -> None:
    from scipy.special import stdtrit

    assert t_quantile(p, degrees) == pytest.approx(float(stdtrit(degrees, p)), rel=1e-5, abs=1e-9)

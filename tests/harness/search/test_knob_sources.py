"""Any text with knobs is parsed or refused, and setting a knob changes nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space import knobs
from harness.search.space.tunable_source import of_knobs
from harness.verdict import Value
from tests.support.searches.search_case import config_key

NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,6}", fullmatch=True)


NUMBERS = st.integers(-10**6, 10**6) | st.decimals(-1000, 1000, places=3).map(float)


WORDS = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


CHOICES = st.lists(NUMBERS, min_size=1, max_size=8, unique=True) | \
    st.lists(WORDS, min_size=1, max_size=8, unique=True)


FILLER = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30).filter(
    lambda line: "kopt" not in line)


ENDS = st.sampled_from(["\n", "\r\n"])


def spell(value: Value) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@st.composite
def sources(draw: st.DrawFn) -> tuple[str, dict[str, Value], dict[int, str]]:
    """Draw a C source with knobs and other lines, a configuration, and those lines by number."""
    lines: list[str] = []
    other: dict[int, str] = {}
    config: dict[str, Value] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        for text in draw(st.lists(FILLER, max_size=3)):
            other[len(lines)] = text + draw(ENDS)
            lines.append(other[len(lines)])
        choices = draw(CHOICES)
        now = draw(st.sampled_from(choices))
        listed = ", ".join(spell(choice) for choice in choices)
        form = draw(st.sampled_from(["#define {} {}", "static const int {} = {};"]))
        lines.append(f"{form.format(name, spell(now))}  // kopt: knob {name} in [{listed}]"
                     + draw(ENDS))
        if draw(st.booleans()):
            config[name] = draw(st.sampled_from(choices))
    return "".join(lines), config, other


@given(sources())
def test_set_values_are_found_and_nothing_else_changes(
        drawn: tuple[str, dict[str, Value], dict[int, str]]) -> None:
    source, config, other = drawn
    before = knobs.current(knobs.find(source, language="c"))
    changed = knobs.apply(source, config, language="c")
    assert knobs.current(knobs.find(changed, language="c")) == {**before, **config}
    after = [line for line in changed.replace("\r\n", "\n").split("\n")]
    assert len(after) == source.count("\n") + 1
    for number, text in other.items():
        assert after[number] == text.rstrip("\r\n")
    assert knobs.apply(source, before, language="c") == knobs.apply(changed, before, language="c")


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for language in ("c", "triton"):
        for source in (text, f"#define A 1 // kopt: knob {text}",
                       f"A = 1 # kopt: knob A in [{text}"):
            try:
                declared = knobs.find(source, language=language)
            except InputError:
                continue
            assert knobs.apply(source, knobs.current(declared), language=language) is not None


@settings(max_examples=20)
@given(st.dictionaries(NAMES, CHOICES, min_size=1, max_size=3), st.integers(0, 99))
def test_search_proposes_every_configuration_once(choices: dict[str, list[Value]],
                                                  seed: int) -> None:
    declared = tuple(knobs.Knob(name=name, line=1, value=values[0], choices=tuple(values))
                  for name, values in choices.items())
    space = of_knobs(declared)
    strategy = BayesianSearch(space, seed)
    keys = []
    while (config := strategy.ask()) is not None and len(keys) < 60:
        keys.append(config_key(space, config))
        strategy.tell(config, None if len(keys) % 3 else float(len(keys)))
    assert keys[0] == config_key(space, space.default)
    assert len(set(keys)) == len(keys) == min(space.size, 60)

"""A source declares knobs in fixed forms, and setting them changes nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space import knobs
from harness.search.space.tunable_source import of_knobs
from harness.tasks import task_file
from harness.verdict import Value
from tests.support.paths import EXAMPLES

READS = [
    ("c", "#define TILE 32  // kopt: knob TILE in [16, 32, 64]", "TILE", 32, (16, 32, 64)),
    ("c", "#  define  TILE\t32 /* kopt: knob TILE in [16,32] rows */", "TILE", 32, (16, 32)),
    ("c", "static const int TILE = 8;  // kopt: knob TILE in [4, 8]", "TILE", 8, (4, 8)),
    ("c", "#define REAL float  // kopt: knob REAL in [float, double]", "REAL", "float",
     ("float", "double")),
    ("c", "#define SCALE 0.5  // kopt: knob SCALE in [0.25, 0.5]", "SCALE", 0.5, (0.25, 0.5)),
    ("c", "#define OFF -1  // kopt: knob OFF in [-1, 0, 1]", "OFF", -1, (-1, 0, 1)),
    ("c", "#define N 4  // kopt: knob N in [4, 8, 4, 8]", "N", 4, (4, 8)),
    ("c", "int a = 1, B = 2; // kopt: knob B in [2, 3]", "B", 2, (2, 3)),
    ("python", "WARPS = 4  # kopt: knob WARPS in [4, 8] warps", "WARPS", 4, (4, 8)),
    ("python", "FAST = True  # kopt: knob FAST in [True, False]", "FAST", "True",
     ("True", "False")),
    ("triton", "def f(\n  B: tl.constexpr = 64,  # kopt: knob B in [64, 128]\n): pass", "B", 64,
     (64, 128)),
    ("triton", "f(x, num_warps=4)  # kopt: knob num_warps in [4, 8]", "num_warps", 4, (4, 8)),
    ("c", "#define EPS 0.00001  // kopt: knob EPS in [0.00001, 0.001]", "EPS", 1e-5,
     (1e-5, 1e-3)),
]


REFUSED = [
    ("c", "#define TILE 32  // kopt: knob TILE in []", "no choices"),
    ("c", "#define TILE 32  // kopt: knob TILE in [ , ,]", "no choices"),
    ("c", "#define TILE 32  // kopt: knob TILE", "cannot read"),
    ("c", "#define TILE 32  // kopt: knob TILE in [16, 64]", "not among its choices"),
    ("c", "#define TILE (4)  // kopt: knob TILE in [4, 8]", "not set on its own line"),
    ("c", "#define TILE 4 * 2  // kopt: knob TILE in [4, 8]", "not set on its own line"),
    ("c", "#define OTHER 4  // kopt: knob TILE in [4, 8]", "not set on its own line"),
    ("c", "if (TILE == 4) {}  // kopt: knob TILE in [4, 8]", "not set on its own line"),
    ("c", "#define TILE 4  // kopt: knob TILE in [4, 4; rm -rf]", "neither a number nor a name"),
    ("c", "#define TILE 4  // kopt: knob TILE in [4, 0x10]", "neither a number nor a name"),
    ("c", "#define TILE 4  // kopt: knob TILE in [4, 010]", "neither a number nor a name"),
    ("c", "#define TILE 4  // kopt: knob TILE in [4, \u0664]", "neither a number nor a name"),
    ("c", "#define TILE 4  // kopt: knob TILE in [4, 1e9]", "neither a number nor a name"),
    ("c", "#define T nan  // kopt: knob T in [inf, x]", "not among its choices"),
    ("c", f"#define T 1  // kopt: knob T in [1, {'9' * 5000}]", "neither a number nor a name"),
    ("c", f"#define T {'9' * 5000}  // kopt: knob T in [1]", "not among its choices"),
    ("c", f"#define T 1  // kopt: knob T in {list(range(1, 1000))}", "at most 256"),
    ("c", "#define A 1 // kopt: knob A in [1]\n#define A 1 // kopt: knob A in [1]", "twice"),
    ("triton", "def broken(:\n", "not Python"),
    ("triton", "x = 1\0", "not Python"),
    ("triton", "x = " + "-" * 200_000 + "1", "not Python"),
]


@pytest.mark.parametrize(("language", "source", "name", "value", "choices"), READS,
                         ids=range(len(READS)))
def test_declaration_is_read(language: str, source: str, name: str, value: Value,
                             choices: tuple[Value, ...]) -> None:
    (knob,) = knobs.find(source, language=language)
    assert (knob.name, knob.value, knob.choices) == (name, value, choices)
    assert type(knob.value) is type(value)
    for choice in choices:
        changed = knobs.apply(source, {name: choice}, language=language)
        assert knobs.current(knobs.find(changed, language=language)) == {name: choice}


@pytest.mark.parametrize(("language", "source", "what"), REFUSED, ids=range(len(REFUSED)))
def test_invalid_declaration_is_refused_in_one_line(language: str, source: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        knobs.find(source, language=language, where="k.c")
    assert what in refused.value.what
    assert "\n" not in refused.value.what and len(refused.value.what) < 400


@pytest.mark.parametrize("value", [True, 1.0, "1", 3, None, [1], "1\n#define X"])
def test_only_choices_can_be_set(value: object) -> None:
    source = "#define A 1  // kopt: knob A in [1, 2]\n"
    with pytest.raises(InputError, match="cannot be"):
        knobs.apply(source, {"A": value}, language="c")  # type: ignore[dict-item]
    with pytest.raises(InputError, match="no knob"):
        knobs.apply(source, {"B": 1}, language="c")


RESERVED = """#define A 1  // kopt: knob A in [1, 2] reserved: for later
#define B 2  // kopt: knob B in [1, 2] is not reserved
#define C 0.5  // kopt: knob C in [0.5, 1.0]reserved
"""


def test_reserved_knob_is_documented_and_fixed() -> None:
    declared = knobs.find(RESERVED, language="c")
    assert [(knob.name, knob.reserved, knob.note) for knob in declared] == [
        ("A", True, "for later"), ("B", False, "is not reserved"), ("C", True, "")]
    assert of_knobs(declared).choices == {"B": (1, 2)}
    assert knobs.apply(RESERVED, {"A": 1, "B": 1}, language="c") == RESERVED.replace("B 2", "B 1")
    with pytest.raises(InputError, match="'A' is reserved: it stays 1"):
        knobs.apply(RESERVED, {"A": 2}, language="c")
    for only in (["A"], ["A", "B"]):
        with pytest.raises(InputError, match="'A' is reserved: it cannot be searched"):
            of_knobs(declared, only)
    with pytest.raises(InputError, match="'A' is reserved"):
        of_knobs(declared[:1])


def test_check_of_a_configuration_returns_its_faults_and_never_raises() -> None:
    declared = knobs.find(RESERVED, language="c")
    checked = knobs.check(declared, {"A": 1, "B": 1, "C": 0.5, "NEW\x1b": 3})
    assert checked == knobs.CheckedConfig(config={"A": 1, "B": 1, "C": 0.5}, dropped=("NEW",))
    wrong = knobs.check(declared, {"A": 2, "B": True, "C": "0.5"})
    assert wrong.config == {"A": 2} and [fault.split("'")[1] for fault in wrong.faults] == [
        "A", "B", "C"]
    assert knobs.check(declared, {"C": object()}).faults
    as_float = knobs.find("#define C 1.0  // kopt: knob C in [1.0, 2.0]", language="c")
    assert knobs.check(as_float, {"C": 2}).config == {"C": 2.0}
    assert knobs.apply("#define C 1.0  // kopt: knob C in [1.0, 2.0]", {"C": 2},
                       language="c").startswith("#define C 2.0 ")


def test_kernel_id_does_not_depend_on_knob_values() -> None:
    names = {knobs.identity("op", source, language="c") for source in (
        RESERVED, RESERVED.replace("B 2", "B 1"), RESERVED.replace("A 1", "A 2"))}
    assert len(names) == 1
    for other in (RESERVED + " ", RESERVED.replace("[1, 2] is", "[1, 2, 4] is")):
        assert knobs.identity("op", other, language="c") not in names
    assert knobs.identity("other", RESERVED, language="c") not in names


def test_source_without_knobs_has_no_space() -> None:
    assert knobs.find("", language="triton") == ()
    with pytest.raises(InputError, match="declares no knob"):
        of_knobs(())


TUNED = '''import triton
@triton.autotune(
    configs=[
        triton.Config({"B": 64}, num_warps=4),  # small
        triton.Config({'B': 128}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def kernel(x, n, B): pass
'''


def test_autotune_list_is_one_knob() -> None:
    (knob,) = knobs.find(TUNED, language="triton")
    assert knob.name == "kernel.config"
    assert knob.value == "triton.Config({'B': 64}, num_warps=4)"
    pinned = knobs.apply(TUNED, {"kernel.config": knob.choices[1]}, language="triton")
    assert knobs.current(knobs.find(pinned, language="triton")) == {"kernel.config":
                                                                    knob.choices[1]}
    before, after = TUNED.splitlines(), pinned.splitlines()
    assert after[:2] == before[:2] and after[-4:] == before[-4:]
    compile(pinned, "kernel.py", "exec")


@pytest.mark.parametrize("listed", ["[]", "[*MORE]", "MORE", "[c for c in MORE]", "[MORE[0]]",
                                    "[triton.Config({}), triton.Config({})]"])
def test_empty_generated_or_repeating_autotune_lists_are_not_knobs(listed: str) -> None:
    source = f"@triton.autotune(configs={listed}, key=[])\ndef kernel(): pass\n"
    assert knobs.find(source, language="triton") == ()


def test_only_line_ends_of_the_language_separate_lines() -> None:
    source = "s = 'a\u2028b\x0cc'\r\n" + TUNED + "W = 4  # kopt: knob W in [4, 8]\r\n"
    config = knobs.find(source, language="triton")[-1].choices[1]
    changed = knobs.apply(source, {"W": 8, "kernel.config": config}, language="triton")
    assert changed.startswith("s = 'a\u2028b\x0cc'\r\nimport triton\n@triton.autotune(\n")
    assert changed.endswith("W = 8  # kopt: knob W in [4, 8]\r\n")
    assert f"configs=[{config}],\n" in changed


def test_source_must_be_utf8_text(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_bytes(b"#define A 1\r\n")
    assert knobs.read(tmp_path / "k.c") == "#define A 1\r\n"
    (tmp_path / "k.c").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        knobs.read(tmp_path / "k.c")
    with pytest.raises(InputError, match="cannot read"):
        knobs.read(tmp_path / "none.c")


@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.iterdir()
                                           if (p / "task.yaml").is_file()))
def test_examples_declare_knobs(example: str) -> None:

    task = task_file.load(EXAMPLES / example / "task.yaml")
    source = knobs.read(EXAMPLES / example / task.source)
    space = of_knobs(knobs.find(source, language=task.language, where=task.source))
    assert space.size >= 20


REQUIRED = """/* kopt: require M * N <= 64 */
#define M 4  // kopt: knob M in [4, 8, 16]
#define N 8  // kopt: knob N in [8, 16] reserved: until later
x(); // kopt: require M != 8 or N > 8
"""


def test_requirements_are_read_from_the_source() -> None:
    declared = knobs.find(REQUIRED, language="c")
    required = knobs.requirements(REQUIRED, declared)
    assert [requirement.text for requirement in required] == ["M * N <= 64", "M != 8 or N > 8"]
    assert knobs.check(declared, {"M": 4}, required).faults == ()
    assert knobs.check(declared, {"M": 16}, required).faults == (
        "does not meet the requirement M * N <= 64",)
    assert knobs.check(declared, {"M": 8}, required).faults == (
        "does not meet the requirement M != 8 or N > 8",)
    space = of_knobs(declared, (), required)
    assert space.requires == ("M * 8 <= 64", "M != 8 or 8 > 8")
    search = BayesianSearch(space, 0)
    assert search.ask() == {"M": 4} and search.ask() is None


@pytest.mark.parametrize(("line", "why"), [
    ("// kopt: require M * N <", "cannot read the requirement"),
    ("// kopt: require M * Q < 4", "unknown name 'Q'"),
    ("# kopt: require M > 4", "the source itself does not meet"),
    ("// kopt: require M / (N - 8) > 0", "the source itself does not meet"),
    ("// kopt: require open('/etc/passwd')", "is not understood")])
def test_invalid_requirement_line_is_refused(line: str, why: str) -> None:
    source = REQUIRED + line + "\n"
    with pytest.raises(InputError, match=re.escape(why)) as raised:
        knobs.requirements(source, knobs.find(source, language="c"), "k.c")
    assert raised.value.where == "k.c:5"

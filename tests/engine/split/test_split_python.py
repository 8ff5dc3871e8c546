"""Tests that a split Python source runs, computes the same, and takes the right kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.split import class_preferences
from engine.split.class_sizes import entry_parameters
from engine.split.languages.conditions import parse
from engine.split.languages.python_language import Python
from engine.split.specialise import merge
from harness.errors import InputError, Refused
from harness.search.space import knobs
from harness.tasks import task_file
from tests.support.paths import EXAMPLES
from tests.support.searches.split_case import group
from tests.support.searches.split_python_case import KERNEL, PY, divided


def tile_taken(source: str, context: int) -> int:
    """Return the tile of the kernel that a call takes; check the result of the call."""
    module: dict[str, Any] = {}
    exec(compile(source, "kernel.py", "exec"), module)
    assert module["total"](list(range(context)), context, scale=2.0) == context * (context - 1)
    taken: int = module["taken"][-1]
    return taken


LONG = group("context >= 1024", {"context": 1024}, TILE=256)
SHORT = group("context <= 8", {"context": 8}, TILE=4)
AGAIN = group("context >= 4096", {"context": 4096}, TILE_v1=4)
SPLITS = {
    "not at all": ([], {8: 32, 1024: 32}),
    "once": ([[LONG]], {8: 32, 1023: 32, 1024: 256}),
    "two at once": ([[LONG, SHORT]], {8: 4, 64: 32, 1024: 256}),
    "again, off the default path": ([[LONG], [SHORT]], {8: 4, 64: 32, 1024: 256}),
    "again, off a variant": ([[LONG], [AGAIN]], {8: 32, 1024: 256, 4096: 4}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_each_call_takes_its_kernel_and_is_correct(name: str) -> None:
    steps, expected = SPLITS[name]
    source = KERNEL
    for groups in steps:
        source = divided(source, *groups)
    assert {context: tile_taken(source, context) for context in expected} == expected


def test_comment_lists_the_kernel_of_each_class() -> None:
    source = divided(KERNEL, LONG)
    assert source.endswith("""\
# kopt split: total takes the first of these kernels whose condition holds
#   context >= 1024: total_v1 (TILE=256), class context >= 1024
#   otherwise: total_base, the kernel that is not specialised
def total(x, context, *, scale=1.0):
    if context >= 1024:
        return total_v1(x, context, scale=scale)
    return total_base(x, context, scale=scale)
# kopt split: end
""")
    assert source.startswith(KERNEL.replace("def total(", "def total_base(").rstrip())
    assert "def part_v1" not in source and source.count("def tile_of_v1(x)") == 1
    required = knobs.requirements(source, knobs.find(source, language="python"))
    texts = [requirement.text for requirement in required]
    assert texts[1:] == ["TILE_v1 <= 8 * START or TILE_v1 == 256"]
    columns = class_preferences.dispatch_columns
    assert columns(PY, source, ["context", "x", "impl"], ["TILE", "TILE_v1"]) == {
        "context": "context", "x": "x"}


FORMS = {
    "an argument named like the knob": ("def g(K):\n    return K\ndef f(n):\n    return g(n * K)",
                                       "    return g(n * K_v1)"),
    "a variable named like the knob": (
        "def g(n):\n    K = n\n    return K\ndef f(n):\n    return g(n) + K", "return g(n) + K_v1"),
    "a keyword named like the knob": ("def g(m, K):\n    return m + K\ndef f(n):\n    "
                                     "return g(n, K=K)", "return g(n, K=K_v1)"),
    "a member named like the knob": ("def f(n):\n    return K + n.K if n is None else K",
                                    "K_v1 + n.K"),
    "a default value": ("def g(m, by=K):\n    return m + by\ndef f(n):\n    return g(n)",
                        "def g_v1(m, by=K_v1)"),
    "a lambda": ("g = lambda m: m * K\ndef f(n):\n    return g(n)", "g_v1 = lambda m: m * K_v1"),
    "a class": ("class G:\n    size = K\ndef f(n):\n    return G.size + n", "class G_v1:"),
    "a decorated helper": ("def twice(g):\n    return lambda m: 2 * g(m)\n@twice\ndef g(m):\n    "
                           "return m * K\ndef f(n):\n    return g(n)", "@twice\ndef g_v1(m):"),
    "a global that is written": ("seen = K\ndef f(n):\n    global seen\n    seen = n\n    return K",
                                 "global seen_v1"),
    "two on a line": ("a = K; b = 2\ndef f(n):\n    return a + b", "a_v1 = K_v1; b_v1 = 2"),
    "a branch of the module": ("if K > 2:\n    a = 1\nelse:\n    a = 2\ndef f(n):\n    return a",
                               "if K_v1 > 2:\n    a_v1 = 1"),
    "an exception named like the knob": (
        "def g(n):\n    try:\n        return n\n    except ValueError as K:\n        return K\n"
        "def f(n):\n    return g(n) * K", "return g(n) * K_v1"),
    "a format specifier": ("def f(n):\n    return f'{n:{K}}'", "f'{n:{K_v1}}'"),
    "an f-string": ("def f(n):\n    return f'{n} of {K}'", "{n} of {K_v1}"),
    "letters beyond ASCII": ("def f(n):\n    return 'äöü' * 0 + str(K)", "'äöü' * 0 + str(K_v1)"),
    "optional arguments": ("def f(n, *more, by=1, **rest):\n    return K * by",
                             "return f_v1(n, *more, by=by, **rest)"),
    "no line end at the end": ("def f(n):\n    return n * K", "    return f_v1(n)"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_python_can_be_split_twice(name: str) -> None:
    code, words = FORMS[name]
    once = divided(f"K = 2  # kopt: knob K in [2, 4]\n{code}", group("n >= 8", {"n": 8}, K=4))
    assert words in once
    again = divided(once, group("n >= 16", {"n": 16}, K_v1=2))
    module: dict[str, Any] = {}
    exec(compile(again, "kernel.py", "exec"), module)
    if name not in ("a member named like the knob", "letters beyond ASCII"):
        assert module["f"](1) == module["f_base"](1)
        assert module["f"](8) == module["f_v1"](8) and module["f"](16) == module["f_v2"](16)


REFUSED = {
    "no such argument": ("def f(m):\n    return K", {"n": 8}, Refused, "takes n as an integer"),
    "a decorated entry": ("@staticmethod\ndef f(n):\n    return K", {"n": 8}, Refused, "takes n"),
    "a private function": ("def _f(n):\n    return K", {"n": 8}, Refused, "takes n as an integer"),
    "no Python": ("def f(n:\n    return K", {"n": 8}, InputError, "cannot be parsed as Python"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_split_is_refused(name: str) -> None:
    code, point, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        divided(f"K = 2  # kopt: knob K in [2, 4]\n{code}", group("n >= 8", point, K=4))


def test_default_that_uses_a_knob_is_refused() -> None:
    """A dispatcher would pass the old kernel's value to the variant."""
    source = KERNEL.replace("scale=1.0", "scale=float(TILE)")
    with pytest.raises(Refused):
        divided(source, LONG)


def test_form_feed_does_not_end_a_line() -> None:
    source = KERNEL.replace("def part", "\f\ndef part")
    assert {context: tile_taken(divided(source, LONG), context) for context in (8, 1024)} == {
        8: 32, 1024: 256}


@pytest.mark.parametrize("changed", [("if context >= 1024:", "if context >= 1000:"),
                                     ("#   context >= 1024:", "#   context >= 1000:"),
                                     ("return total_base(", "return total_v1(")])
def test_edited_dispatcher_is_refused(changed: tuple[str, str]) -> None:
    source = divided(KERNEL, LONG).replace(*changed)
    with pytest.raises(Refused, match="the dispatch of total was changed"):
        divided(source, SHORT)


def test_candidate_is_merged_with_its_imports() -> None:
    new = KERNEL.replace("import math", "import math\nimport operator").replace(
        "TILE = 32", "TILE = 256").replace("    keep(TILE)\n", "    keep(operator.index(TILE))\n")
    source = merge(KERNEL, new, parse("context >= 1024"), [{"context": 1024}], ["long"], PY)
    assert [tile_taken(source, context) for context in (8, 1024)] == [32, 256]
    assert source.count("import operator") == 1 and source.count("import math") == 1


EXAMPLE = {
    "softmax_triton": ("cols >= 16384", {"cols": 16384}, {"BLOCK": 1024, "VARIANT": "online"},
                       "if x.shape[1] >= 16384:"),
    "matmul_triton": ("k >= 1024", {"k": 1024}, {"BLOCK_M": 64}, "if a.shape[1] >= 1024:"),
    "paged_attention_triton": ("context >= 4096", {"context": 4096}, {"TILE": 64},
                               "if context >= 4096:"),
}


@pytest.mark.parametrize("name", EXAMPLE)
def test_triton_examples_are_split_by_sizes(name: str) -> None:
    condition, point, config, words = EXAMPLE[name]
    triton = Python("triton")
    task = task_file.load(EXAMPLES / name / "task.yaml")
    source = (EXAMPLES / name / "kernel.py").read_text()
    names = entry_parameters(triton, source, task)
    done = divided(source, group(condition, point, **config), language=triton, **names)
    assert words in done
    compile(done, "kernel.py", "exec")
    assert entry_parameters(triton, done, task) == names
    knobs.requirements(done, knobs.find(done, language="triton"))


def test_sizes_of_a_task_are_those_of_its_tensors() -> None:
    task = task_file.load(EXAMPLES / "softmax_triton" / "task.yaml")
    assert entry_parameters(PY, "def softmax(a, b):\n    pass\n", task) == {
        "rows": "a.shape[0]", "cols": "a.shape[1]"}
    assert entry_parameters(PY, "def softmax(a):\n    pass\n", task) == {}
    assert entry_parameters(PY, "def other(a, b):\n    pass\n", task) == {}
    two = replace(task, entry="other")
    assert entry_parameters(PY, "def other(a, b):\n    pass\n", two) != {}

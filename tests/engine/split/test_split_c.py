"""Tests that a split C source compiles, computes the same, and takes the right kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.split import class_preferences, specialise
from engine.split.class_preferences import ClassGroup
from engine.split.languages import conditions
from engine.split.languages.c_language import C
from harness.errors import InputError, KoptError, Refused
from harness.search.space import knobs
from tests.support.paths import EXAMPLES
from tests.support.searches import split_case
from tests.support.searches.split_case import built, divided, group, start, tile_taken

PLAIN_C = C()
LONG = group("context >= 1024", {"context": 1024, "heads": 1}, "context=1024", TILE=256)
SHORT = group("context <= 8", {"context": 8, "heads": 1}, "context=8", TILE=4)
MANY = group("context >= 1024 && heads >= 3", {"context": 1024, "heads": 3}, TILE_v1=4)
MIDDLE = group("context == 64", {"context": 64, "heads": 1}, TILE=4)
SPLITS: dict[str, tuple[list[list[ClassGroup]], dict[tuple[int, int], int]]] = {
    "not at all": ([], {(8, 1): 32, (1024, 1): 32}),
    "once": ([[LONG]], {(8, 1): 32, (1023, 2): 32, (1024, 1): 256, (4096, 3): 256}),
    "two at once": ([[LONG, SHORT]], {(8, 1): 4, (9, 1): 32, (1024, 1): 256}),
    "again, off the default path": (
        [[LONG], [MIDDLE]], {(63, 1): 32, (64, 1): 4, (65, 1): 32, (1024, 1): 256}),
    "again, off a variant": (
        [[LONG], [MANY]], {(8, 3): 32, (1024, 1): 256, (1024, 3): 4, (4096, 3): 4}),
    "three times": ([[LONG], [MANY], [SHORT]],
                    {(8, 3): 4, (64, 1): 32, (1024, 1): 256, (1024, 3): 4}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_each_call_takes_its_kernel_and_is_correct(name: str, tmp_path: Path) -> None:
    steps, expected = SPLITS[name]
    source = split_case.KERNEL
    for groups in steps:
        source = divided(source, *groups)
    library = built(tmp_path, source)
    assert {call: tile_taken(library, *call) for call in expected} == expected


def test_old_kernel_stays_and_common_helpers_are_shared() -> None:
    source = divided(split_case.KERNEL, LONG)
    before = split_case.KERNEL.replace("void total(", "void total_base(").rstrip()
    assert source.startswith(before)
    assert source.count("count_head(int64_t") == 1 and source.count("part_v1(") == 2
    assert start(source) == {"TILE": 32, "START": 16, "TILE_v1": 256}
    required = knobs.requirements(source, knobs.find(source, language="c"))
    assert [requirement.text for requirement in required] == [
        "TILE <= 8 * START or TILE == 256", "TILE_v1 <= 8 * START or TILE_v1 == 256"]


def test_comment_lists_the_kernel_of_each_class() -> None:
    source = divided(split_case.KERNEL, LONG, SHORT)
    assert """\
/* kopt split: total takes the first of these kernels whose condition holds
   context <= 8: total_v2 (TILE=4), class context=8
   context >= 1024: total_v1 (TILE=256), class context=1024
   otherwise: total_base, the kernel that is not specialised */
void total(const double *x, double out[], int64_t context, const int64_t heads) {
    if (context <= 8)
        total_v2(x, out, context, heads);
    else if (context >= 1024)
        total_v1(x, out, context, heads);
    else
        total_base(x, out, context, heads);
}
/* kopt split: end */
""" in source
    text, (block,) = PLAIN_C.read(source)
    assert (block.entry, block.default) == ("total", "total_base")
    assert [branch.kernel for branch in block.branches] == ["total_v2", "total_v1"]
    assert block.kernel_for({"context": 4096, "heads": 1}) == "total_v1"
    assert "kopt split" not in text


def test_variant_is_shared_by_two_conditions(tmp_path: Path) -> None:
    same = group("context <= 8", {"context": 8, "heads": 1}, TILE=256)
    source = divided(split_case.KERNEL, LONG, same)
    assert "_v2" not in source and source.count("total_v1(x,") == 2
    library = built(tmp_path, source)
    assert [tile_taken(library, context, 1) for context in (8, 64, 1024)] == [256, 32, 256]


REFUSED: dict[str, tuple[Callable[[str], str], ClassGroup, str]] = {
    "no parameter of that name": (
        lambda s: s, group("size >= 4", {"size": 4}, TILE=4), "takes size as an integer"),
    "a parameter that is not a whole number": (
        lambda s: s.replace("int64_t context,", "double context,").replace("context & MASK", "0")
        .replace("int64_t i = 0; i < context", "double i = 0; i < context"),
        LONG, "takes context as an integer"),
    "a pointer": (lambda s: s.replace("int64_t context,", "int64_t *context,"), LONG,
                  "takes context as an integer"),
    "a static function": (
        lambda s: s.replace("void total(", "static void total("), LONG, "takes context"),
    "a taken name": (
        lambda s: s + "int total_base;\n", LONG, "total_base is already used"),
    "a dispatcher with edited code": (
        lambda s: divided(s, SHORT).replace("if (context <= 8)", "if (context <= 9)"), LONG,
        "the dispatch of total was changed since kopt wrote it"),
    "a dispatcher with an edited table": (
        lambda s: divided(s, SHORT).replace("   context <= 8: total_v1", "   tiny: total_v1"),
        LONG, "'tiny' is not a condition"),
    "a class that already takes two kernels": (
        lambda s: divided(s, SHORT),
        ClassGroup(config={"START": 64}, classes=("context<=16",), gain=0.1,
                   points=({"context": 8, "heads": 1}, {"context": 16, "heads": 1}),
                   condition=conditions.parse("context <= 16")), "take different kernels"),
    "knobs of a kernel that the class does not take": (
        lambda s: divided(s, SHORT),
        group("context >= 64", {"context": 64, "heads": 1}, TILE_v1=32),
        "TILE_v1 does not change the kernel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_split_is_refused_in_one_line(name: str) -> None:
    change, group_, words = REFUSED[name]
    source = change(split_case.KERNEL)
    with pytest.raises(Refused, match=words) as raised:
        divided(source, group_, names={**split_case.SAME, "size": "size"})
    assert "\n" not in str(raised.value)


def test_dispatcher_leaves_comments_of_the_head_out(tmp_path: Path) -> None:
    source = split_case.KERNEL.replace("void total(", "void // exported\ntotal(")
    library = built(tmp_path / "k", divided(source, LONG))
    assert (tile_taken(library, 8, 1), tile_taken(library, 4096, 1)) == (32, 256)


def test_number_of_variants_is_limited() -> None:
    source = split_case.KERNEL
    for number in range(specialise.MOST_VARIANTS):
        size = 1024 * (number + 1)
        source = divided(source, group(f"context == {size}", {"context": size, "heads": 1},
                                       TILE=256))
    with pytest.raises(Refused, match="already has 6 variants"):
        divided(source, group("context <= 8", {"context": 8, "heads": 1}, TILE=4))


FORMS = {
    "a value is returned": ("int f(int n) { return n * K; }", "return f_v1(n);"),
    "a pointer is returned": (
        "static char room[K];\nvoid *f(int n) { return room + n; }", "return f_v1(n);"),
    "an export macro": ("#define API __attribute__((visibility(\"default\")))\n"
                       "API int f(int n) { return n * K; }", "API int f(int n) {"),
    "the return type on a line of its own": ("unsigned\nlong\nf(unsigned int n)\n{\n  return K;\n}",
                                             "unsigned long f(unsigned int n) {"),
    "a prototype before it": ("int f(int n);\nint g(int n) { return f(n); }\n"
                              "int f(int n) { return n * K; }", "return f_v1(n);"),
    "a helper that is declared ahead": (
        "static int help(int);\nint f(int n) { return help(n); }\n"
        "static int help(int m) { return m * K; }", "static int help_v1(int m)"),
    "two entry points": ("int f(int n) { return n * K; }\nint back(int n) { return n + K; }",
                         "return back_v1(n);"),
    "an entry point that another calls": (
        "int f(int n) { return n * K; }\nint twice(int n) { return 2 * f(n); }",
        "return 2 * f_v1(n);"),
    "an entry point called by one without the column": (
        "int f(int n) { return n * K; }\nint ten(void) { return f(10); }", "return f(10);"),
    "a knob behind a guard": (
        "#ifndef WIDE\n#define WIDE (2 * K)\n#endif\nint f(int n) { return n * WIDE; }",
        "#ifndef WIDE_v1"),
    "a function that is compiled one way or the other": (
        "#if K > 2\nstatic int g(int m) { return m; }\n#else\nstatic int g(int m) { return -m; }\n"
        "#endif\nint f(int n) { return g(n); }", "#if K_v1 > 2"),
    "an enumerator and a table of that size": (
        "enum { ROOM = K, MORE };\nstatic int table[ROOM] = { 1 };\n"
        "int f(int n) { return table[0] + n; }", "static int table_v1[ROOM_v1] = { 1 };"),
    "a typedef of that size": ("typedef struct { int room[K]; } Room;\n"
                               "int f(int n) { Room r = {{n}}; return r.room[0]; }", "} Room_v1;"),
    "a member named like the knob": (
        "struct s { int K_; int f; };\nint f(int n) { struct s s = {n, K}; return s.f; }",
        "return s.f;"),
    "braces and names in strings and comments": (
        "/* K } */ // f {\nint f(int n) { return n * K + \"K }{\"[0]; }", "\"K }{\"[0]"),
    "an array parameter and a comment in the list": (
        "int f(const int x[], /* how many, at most K */ int n) { return x[0] * n * K; }",
        "return f_v1(x, n);"),
    "a continued line": ("#define AREA(x) \\\n    ((x) * K)\nint f(int n) { return AREA(n); }",
                            "#define AREA_v1(x)"),
    "names that end like kopt's suffixes": (
        "static int g_v1(int m) { return m * K; }\nstatic int g(int m) { return g_v1(m) + K; }\n"
        "int f(int n) { return g(n); }", "return g_v2(n);"),
    "windows line ends": ("int f(int n)\r\n{\r\n  return n * K;\r\n}\r\n", "return f_v1(n);"),
    "no line end at the end": ("int f(int n) { return n * K; }", "return f_v1(n);"),
    "an attribute after a declarator": (
        "static const int t[2] __attribute__((aligned(32))) = { K, 1 };\n"
        "int f(int n) { return t[0] * n; }", "static const int t_v1[2]"),
    "a macro for a statement": (
        "#define EACH for (int i = 0; i < K; i++)\nint f(int n) { int s = 0; EACH s += n; "
        "return s; }", "EACH_v1 s += n;"),
    "a macro for a loop's head": (
        "#define EACH(i, n) for (int i = 0; i < (n); i++)\n"
        "int f(int n) { int s = 0; EACH(i, K) { s += n; } return s; }",
        "EACH(i, K_v1) { s += n; }"),
    "a macro before a loop": (
        "#define UNROLL _Pragma(\"GCC unroll 4\")\nint f(int n) { int s = 0; "
        "UNROLL for (int i = 0; i < K; i++) s += n; return s; }",
        "UNROLL for (int i = 0; i < K_v1"),
    "blanks after an empty macro": (
        "#define EMPTY  \nEMPTY int f(int n) { return n * K; }", "EMPTY int f(int n) {"),
    "linkage for C++": (
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\nint f(int n) { return n * K; }\n"
        "#ifdef __cplusplus\n}\n#endif", "return f_v1(n);"),
    "conditionals in a body": (
        "int f(int n) {\n#if K > 2\n    return n;\n#else\n    return -n;\n#endif\n}",
        "#if K_v1 > 2"),
    "a range of cases": (
        "int f(int n) { switch (n) { case 1 ... K: return 1; } return 0; }", "case 1 ... K_v1:"),
    "letters beyond ASCII": ("/* ≥ 8 Zahlen für f */ int f(int n) { return n * K; /* ä */ }",
                             "return n * K_v1; /* ä */"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_c_can_be_split_twice(name: str, tmp_path: Path) -> None:
    code, words = FORMS[name]
    source = f"#define K 2 // kopt: knob K in [2, 4]\n{code}"
    once = divided(source, group("n >= 8", {"n": 8}, K=4), names={"n": "n"})
    assert words in once
    (_, knob) = start(once)
    again = divided(once, group("n >= 16", {"n": 16}, **{knob: 2}), names={"n": "n"})
    library = built(tmp_path, again)
    if name == "a value is returned":
        assert [library.f(n) for n in (1, 8, 16)] == [2, 32, 32]
        assert start(again) == {"K": 2, "K_v1": 4, "K_v2": 2}


@pytest.mark.parametrize("code", [
    "int f(int n) { return n * K;", "int f(int n) { return (n] * K; }", "int f(int n) }",
    "#if K\nint f(int n) { return K; }", "const char *s = \"abc;\nint f(int n) { return n; }",
    "/* int f(int n) { return n; }", "#if K\nint f(int n) {\n#else\nint f(long n) {\n#endif\n}",
    "int f(int n) { return n; } }", "(" * 5000])
def test_source_with_syntax_error_is_refused_with_its_line(code: str) -> None:
    with pytest.raises(InputError, match="cannot be parsed as C") as raised:
        PLAIN_C.items(code)
    assert raised.value.where.startswith("line ")


@pytest.mark.parametrize(("text", "names", "expected"), [
    ("", ["context", "heads", "impl"], {"context": "context", "heads": "heads"}),
    ("", ["Context", "HEADS"], {"Context": "context", "HEADS": "heads"}),
    ("// kopt: column kv_len is context\n", ["kv_len"], {"kv_len": "context"}),
    ("// kopt: column kv_len is x\n", ["kv_len"], {}), ("", ["x", "out", "steps"], {})])
def test_column_is_matched_by_name_or_comment(
        text: str, names: list[str], expected: dict[str, str]) -> None:
    columns = class_preferences.dispatch_columns
    assert columns(PLAIN_C, text + split_case.KERNEL, names, ["TILE"]) == expected
    after = divided(text + split_case.KERNEL, LONG)
    assert columns(PLAIN_C, after, names, ["TILE", "TILE_v1"]) == expected


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.c")), ids=lambda path: path.name)
def test_examples_are_parsed(path: Path) -> None:
    source = path.read_text()
    items = PLAIN_C.items(source)
    assert any(item.function for item in items)
    for knob in knobs.find(source, language="c"):
        assert sum(knob.name in item.defines for item in items) == 1


def test_variant_that_violates_a_requirement_is_refused() -> None:
    with pytest.raises(KoptError, match="requirement"):
        divided(split_case.KERNEL.replace("TILE == 256", "TILE == 4"), LONG)

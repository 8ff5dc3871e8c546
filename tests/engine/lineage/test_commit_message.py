"""A kept commit's message states what it changes and which classes become faster."""

from __future__ import annotations

import difflib
import math

import pytest

from engine.judge import commit_message
from engine.judge.commit_message import PatchWords
from engine.repository.patches.patch import Patch, parse
from harness.errors import InputError
from tests.support.searches import attribution_case as case

C = """\
#define TILE 16  // kopt: knob TILE in [16, 32, 64]
#define DEEP 2   // kopt: knob DEEP in [1, 2, 4]

static inline float half(float x) {
    return x / 2;
}

void scale(const float *x,
           float *out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = half(x[i]);
}
"""
PYTHON = """\
import math

BLOCK = 64  # kopt: knob BLOCK in [64, 128]


def helper(x):
    return x


class Kernel:
    def forward(self, x):
        y = helper(x)
        return y
"""


def summary_of(path: str, language: str, old: str, new: str) -> str:
    diff = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True),
                                        f"a/{path}", f"b/{path}"))
    return commit_message.changed(parse(f"diff --git a/{path} b/{path}\n{diff}"), language,
                                  lambda _: old, lambda _: new).text


@pytest.mark.parametrize(("new", "summary"), [
    (C.replace("TILE 16", "TILE 64"), "TILE 16 -> 64 in k.c"),
    (C.replace("TILE 16", "TILE 64").replace("DEEP 2 ", "DEEP 4 "),
     "TILE 16 -> 64, DEEP 2 -> 4 in k.c"),
    (C.replace("x / 2", "x * 0.5f"), "half() in k.c (+1 -1)"),
    (C.replace("half(x[i])", "x[i] * 0.5f"), "scale() in k.c (+1 -1)"),
    (C.replace("TILE 16", "TILE 32").replace("x / 2", "x * 0.5f"),
     "TILE 16 -> 32, half() in k.c (+2 -2)"),
    ("#include <math.h>\n" + C, "k.c (+1 -0)"),
])
def test_changed_c_functions_and_knobs_are_named(new: str, summary: str) -> None:
    assert summary_of("k.c", "c", C, new) == summary


@pytest.mark.parametrize(("new", "summary"), [
    (PYTHON.replace("BLOCK = 64", "BLOCK = 128"), "BLOCK 64 -> 128 in k.py"),
    (PYTHON.replace("y = helper(x)", "y = x"), "forward() in k.py (+1 -1)"),
    (PYTHON.replace("return x\n", "return x + 0\n"), "helper() in k.py (+1 -1)"),
])
def test_changed_python_functions_and_knobs_are_named(new: str, summary: str) -> None:
    assert summary_of("k.py", "triton", PYTHON, new) == summary


def test_added_removed_and_many_files_are_summarised() -> None:
    def missing_file(_: str) -> str:
        raise InputError("no file")

    new = "".join(f"diff --git a/n{n}.c b/n{n}.c\nnew file mode 100644\n--- /dev/null\n"
                  f"+++ b/n{n}.c\n@@ -0,0 +1 @@\n+int x;\n" for n in range(6))
    assert commit_message.changed(parse(new), "c", missing_file, missing_file).text == \
        "adds n0.c; adds n1.c; adds n2.c; adds n3.c and 2 more"
    assert commit_message.changed(Patch(), "c", missing_file, missing_file).text == ""


def test_commit_message_states_change_gained_classes_and_aim() -> None:
    lines = commit_message.message(
        "pa", case.CANDIDATE, case.verdict(aimed=math.log(1.1)),
        PatchWords("LANES 1 -> 16 in k.c", "LANES 1 -> 16"), case.BOTTLENECKS).split("\n")
    assert lines[:6] == [
        "pa: LANES 1 -> 16 (1.50x)", "", "Why it is faster: LANES 1 -> 16 in k.c.",
        "Gained: in all classes: mtp=1 20.0 us -> 10.0 us (memory: 10.0% -> 20.0% of roofline), "
        "mtp=8 11.0 us -> 10.0 us (compute: 18.2% -> 20.0% of roofline).",
        "Hypothesis: LANES against compute: more multiply-adds in flight.",
        "Aimed at: b2.1 compute in mtp=8 (18 % of roofline)."]


def test_commit_message_without_knobs_gives_the_hypothesis_as_the_reason() -> None:
    text = case_message(PatchWords("scale() in k.c (+3 -1)"))
    assert "Why it is faster: LANES against compute: more multiply-adds in flight: scale() in k.c" \
        in text and "\nHypothesis: " not in text


def case_message(words: PatchWords) -> str:
    return commit_message.message("pa", case.CANDIDATE, case.verdict(aimed=math.log(1.1)), words,
                                  case.BOTTLENECKS)


def test_commit_message_names_target_class_that_did_not_gain() -> None:
    text = commit_message.message(
        "pa", case.CANDIDATE, case.verdict(aimed=-0.001, tie=True),
        PatchWords("LANES 1 -> 16 in k.c", "LANES 1 -> 16"), case.BOTTLENECKS)
    assert "Gained: mtp=1 20.0 us -> 10.0 us (memory" in text
    assert "in flight; the class that it was written for did not gain." in text
    assert "(18 % of roofline), where it did not gain (mtp=8 tie)." in text

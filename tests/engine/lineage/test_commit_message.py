"""A kept commit says what it changes."""

from __future__ import annotations

import difflib

import pytest

from engine.judge import commit_message
from engine.repository.patches.patch import Patch, parse
from harness.errors import InputError
from tests.support import samples

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


def told(path: str, language: str, old: str, new: str) -> str:
    diff = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True),
                                        f"a/{path}", f"b/{path}"))
    return commit_message.changed(parse(f"diff --git a/{path} b/{path}\n{diff}"), language,
                       lambda _: old, lambda _: new)


@pytest.mark.parametrize(("new", "said"), [
    (C.replace("TILE 16", "TILE 64"), "TILE 16 -> 64 in k.c"),
    (C.replace("TILE 16", "TILE 64").replace("DEEP 2 ", "DEEP 4 "),
     "TILE 16 -> 64, DEEP 2 -> 4 in k.c"),
    (C.replace("x / 2", "x * 0.5f"), "half() in k.c (+1 -1)"),
    (C.replace("half(x[i])", "x[i] * 0.5f"), "scale() in k.c (+1 -1)"),
    (C.replace("TILE 16", "TILE 32").replace("x / 2", "x * 0.5f"),
     "TILE 16 -> 32, half() in k.c (+2 -2)"),
    ("#include <math.h>\n" + C, "k.c (+1 -0)"),
])
def test_what_a_change_in_c_touches(new: str, said: str) -> None:
    assert told("k.c", "c", C, new) == said


@pytest.mark.parametrize(("new", "said"), [
    (PYTHON.replace("BLOCK = 64", "BLOCK = 128"), "BLOCK 64 -> 128 in k.py"),
    (PYTHON.replace("y = helper(x)", "y = x"), "forward() in k.py (+1 -1)"),
    (PYTHON.replace("return x\n", "return x + 0\n"), "helper() in k.py (+1 -1)"),
])
def test_what_a_change_in_python_touches(new: str, said: str) -> None:
    assert told("k.py", "triton", PYTHON, new) == said


def test_files_that_come_and_go_and_many_of_them() -> None:
    def gone(_: str) -> str:
        raise InputError("no file")

    new = "".join(f"diff --git a/n{n}.c b/n{n}.c\nnew file mode 100644\n--- /dev/null\n"
                  f"+++ b/n{n}.c\n@@ -0,0 +1 @@\n+int x;\n" for n in range(6))
    assert commit_message.changed(parse(new), "c", gone, gone) == \
        "adds n0.c; adds n1.c; adds n2.c; adds n3.c and 2 more"
    assert commit_message.changed(Patch(), "c", gone, gone) == ""


def test_the_message() -> None:
    said = commit_message.message(
        "rms",
        samples.candidate(bottleneck=""),
        samples.verdict(device="cpu"),
        "TILE 16 -> 64 in k.c",
    ).split("\n")
    assert said[:5] == ["rms: unroll by 4 (1.50x)", "", "Why it is faster: unroll by 4.",
                        "What it changes: TILE 16 -> 64 in k.c.",
                        "It attacks: no single bottleneck."]

"""A candidate's change is summarised in a few words."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.history import change_summary
from tests.support.dashboards import samples

LONG = "x" * 90


def patch(*files: tuple[str, list[str], list[str]]) -> str:
    return "".join(
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
        f"@@ -1,{len(old)} +1,{len(new)} @@\n"
        + "".join(f"-{line}\n" for line in old) + "".join(f"+{line}\n" for line in new)
        for path, old, new in files)


@pytest.mark.parametrize(("text", "words", "quoted"), [
    (patch(("k.c", ["#define TILE 16  /* kopt: knob TILE in [16, 64] */"],
            ["#define TILE 64  /* kopt: knob TILE in [16, 64] */"])),
     "k.c: #define TILE 16 -> #define TILE 64", "#define TILE 16 -> #define TILE 64"),
    (patch(("k.py", ["BLOCK = 16  # kopt: knob BLOCK in [16, 64]"],
            ["BLOCK = 64  # kopt: knob BLOCK in [16, 64]"])),
     "k.py: BLOCK = 16 -> BLOCK = 64", "BLOCK = 16 -> BLOCK = 64"),
    (patch(("k.c", ["int a = 1;", "int b;"], ["int a = 2;", "int b;"])),
     "k.c: int a = 1; -> int a = 2;", "int a = 1; -> int a = 2;"),
    (patch(("k.c", ["prefetch();"], [])), "k.c: removed prefetch();", "removed prefetch();"),
    (patch(("k.c", [], ["#pragma unroll"])), "k.c: added #pragma unroll", "added #pragma unroll"),
    (patch(("k.c", ["int sum(int n) {", *(f"    a{n};" for n in range(4))], ["    b;"])),
     "k.c +1 -5 in sum()", ""),
    (patch(("k.c", [f"a{n};" for n in range(4)], ["b;"])), "k.c +1 -4", ""),
    (patch(("k.c", [LONG], ["b;"])), "k.c +1 -1", ""),
    (patch(("k.c", ["a;"], ["b;"]), ("l.c", ["c;"], ["d;"])), "k.c: a; -> b;; l.c: c; -> d;", ""),
    (patch(("k.c", [f"#define N{n} 1  // kopt: knob N{n} in [1, 2]" for n in range(4)],
            [f"#define N{n} 2  // kopt: knob N{n} in [1, 2]" for n in range(4)])),
     "k.c: N0 1 -> 2, N1 1 -> 2, N2 1 -> 2, N3 1 -> 2", ""),
    ("no patch at all", "", ""),
], ids=["a knob in C", "a knob in Python", "unchanged lines are left out", "a removed line",
        "an added line", "a function",
        "many lines", "a long line", "two files", "many knobs", "nothing"])
def test_short_change_is_quoted_and_long_change_is_counted(text: str, words: str, quoted: str,
                                                           tmp_path: Path) -> None:
    (tmp_path / "one.patch").write_text(text)
    candidate = samples.candidate(patch_path="one.patch")
    assert change_summary.describe(tmp_path, candidate) == words
    assert change_summary.quoted(tmp_path, candidate) == quoted


@pytest.mark.parametrize(("text", "words"), [
    (patch(("k.c", [*(f"a{n};" for n in range(9)), "int n;  // kopt: knob ODD",
                    "#define TILE 16  // kopt: knob TILE in [16, 64]"],
            ["#define TILE 64  // kopt: knob TILE in [16, 64]", "int m;  // kopt: knob ODD"]),
           ("k.py", ["BLOCK = 16  # kopt: knob BLOCK in [16, 64]",
                     "WARPS = 4  # kopt: knob WARPS in [4, 8]"],
            ["WARPS = 4  # kopt: knob WARPS in [4, 8]", "BLOCK = 64  # kopt: knob BLOCK in [16, 64]"
             ])), "TILE 16 -> 64, BLOCK 16 -> 64"),
    (patch(("k.c", [], [f"#define TILE{end} 4  // kopt: knob TILE{end} in [4, 16]"
                         for end in ("", "_v1")])), "TILE = 4 in variant v1"),
    (patch(("k.c", ["a;"], ["#define NEW 1  // kopt: knob NEW in [1, 2]"])), ""),
    ("no patch at all", ""),
], ids=["a long one", "a variant's knob", "a new knob", "nothing"])
def test_knobs_are_named_in_patches_of_any_length(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "one.patch").write_text(text)
    assert change_summary.knobs(tmp_path, samples.candidate(patch_path="one.patch")) == words


def test_missing_patch_has_no_summary(tmp_path: Path) -> None:
    for candidate in (samples.candidate(patch_path="gone.patch"), None):
        assert change_summary.files(tmp_path, candidate) == ()
        assert change_summary.describe(tmp_path, candidate) == ""

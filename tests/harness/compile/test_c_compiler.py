"""C libraries are aligned so that the time of a loop does not depend on its address."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import c_compiler
from harness.tasks.target import Target
from tests.support.kernels import c_case
from tests.support.kernels.c_case import RIGHT, kernel

LINE = 64


def pads(count: int) -> str:
    return "".join(f"int pad{i}(int x) {{ return x * {i + 3} + (x >> {i + 1}); }}\n"
                   for i in range(count))


def built(folder: Path, source: str, target: Target) -> ctypes.CDLL:
    tree = folder / str(len(list(folder.iterdir())))
    tree.mkdir()
    (tree / target.source).write_text(source)
    c_compiler.build(target, tree, tree / "out" / "kernel.so")
    return ctypes.CDLL(str(tree / "out" / "kernel.so"))


def address(library: ctypes.CDLL, name: str = "twice") -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


@pytest.fixture
def fresh_probe() -> Iterator[None]:
    c_compiler.alignment_flags.cache_clear()
    yield
    c_compiler.alignment_flags.cache_clear()


@pytest.mark.parametrize("level", ["-O2", "-O3", "-O1"])
def test_a_function_starts_at_a_cache_line_whatever_precedes_it(level: str, tmp_path: Path,
                                                                  ) -> None:
    target = c_case.target(build=(level,))
    libraries = [built(tmp_path, kernel(RIGHT, before=pads(count)), target)
                 for count in range(5)]
    assert [address(library) % LINE for library in libraries] == [0] * 5
    code = {ctypes.string_at(address(library), LINE) for library in libraries}
    assert len(code) == 1


def test_a_loop_starts_at_a_cache_line_whatever_statement_precedes_it(tmp_path: Path) -> None:
    inside = "for (int64_t i = 0; i < n; i++) { __asm__ volatile(\"loop%=: .globl loop_head\\n" \
        "loop_head:\" ::: \"memory\"); out[i] = 2 * x[i]; }\n"
    offsets = set()
    for before in ("", "if (n == 12345) out[0] = 1;", "if (n < 0) { out[0] = x[1]; return; }"):
        library = built(tmp_path, kernel(f"{before}\n{inside}"), c_case.target())
        offsets.add(address(library, "loop_head") % LINE)
    assert offsets == {0}


def test_flags_of_the_target_override_the_alignment(tmp_path: Path) -> None:
    target = c_case.target(build=("-O2", "-falign-functions=32", "-falign-loops=16"))
    libraries = [built(tmp_path, kernel(RIGHT, before=pads(count)), target)
                 for count in range(1, 6)]
    assert any(address(library) % LINE for library in libraries)


@pytest.mark.usefixtures("fresh_probe")
def test_a_flag_that_the_compiler_does_not_know_is_left_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picky = tmp_path / "cc"
    picky.write_text('#!/bin/sh\nfor a in "$@"; do case "$a" in -falign-jumps*) exit 1;; esac; '
                     'done\nexec gcc "$@"\n')
    picky.chmod(0o755)
    monkeypatch.setattr(c_compiler, "compiler", lambda: str(picky))
    assert c_compiler.alignment_flags(str(picky)) == ("-falign-functions=64", "-falign-loops=64")
    (tmp_path / "trees").mkdir()
    assert address(built(tmp_path / "trees", c_case.FAST, c_case.target())) % LINE == 0


def test_compiler_is_probed_once_for_all_flags(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    counting = tmp_path / "cc"
    counting.write_text(f'#!/bin/sh\necho >> {counter}\nexec gcc "$@"\n')
    counting.chmod(0o755)
    first = c_compiler.alignment_flags(str(counting))
    assert c_compiler.alignment_flags(str(counting)) == first
    assert len(counter.read_text().splitlines()) == 1


def test_missing_compiler_accepts_no_flag() -> None:
    assert c_compiler.alignment_flags("/no/such/compiler") == ()


def test_the_build_of_equal_sources_gives_equal_bytes(tmp_path: Path) -> None:
    target = replace(c_case.target(), build=("-O2",))
    made = []
    for name in "ab":
        tree = tmp_path / name
        tree.mkdir()
        (tree / target.source).write_text(c_case.FAST)
        made.append(c_compiler.build(target, tree, tree / "out" / "kernel.so"))
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["kernel.cpp", "kernel.cc"])
def test_cpp_source_is_linked_with_its_library(name: str, tmp_path: Path) -> None:
    source = """#include <vector>
extern "C" int twice(int x) { std::vector<int> sums(x, 2); int sum = 0;
    for (int each : sums) sum += each;
    return sum; }"""
    library = built(tmp_path, source, replace(c_case.target(), source=name, build=("-O1",)))
    assert library.twice(3) == 6


IN_VECTORS = """\
#include <immintrin.h>
typedef float v8 __attribute__((vector_size(32), aligned(4)));
void named(float *x, long n) {
    for (long i = 0; i < n; i += 8)
        *(v8 *)(x + i) *= *(const v8 *)(x + n + i);
}
void intrinsics(float *x, long n) {
    for (long i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_sqrt_ps(_mm256_loadu_ps(x + i)));
}
long double none(const long double *x, long n) {
    long double sum = 0;
    for (long i = 0; i < n; i++)
        sum += x[i];
    return sum;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the intrinsics are those of x86")
def test_loops_written_with_vectors_are_not_reported_as_not_vectorised(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(IN_VECTORS)
    remarks = c_compiler.remarks_of(c_case.target(source="k.c", build=("-O3", "-mavx2")), tmp_path,
                                    tmp_path / "out")
    assert [(remark.line, remark.vector_bytes) for remark in remarks] == [(13, 0)]

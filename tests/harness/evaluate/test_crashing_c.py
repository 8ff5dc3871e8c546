"""C kernels that crash, hang, flood or do not compile get a clean verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.isolation.process_outcome import Limits
from tests.support.kernels.c_case import FAST, RIGHT, Bench, judge, target
from tests.support.kernels.c_case import kernel as c
from tests.support.kernels.evaluate_c_case import ONE_CLASS, SHORT


@pytest.fixture(autouse=True, scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share one lock between all workers of a test run, which must not time kernels at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))
        yield


CRASHES = {
    "segv": (c("*(volatile int *)0 = 1;"), "class even: crashed (SIGSEGV)"),
    "abort": (c("abort();"), "class even: crashed (SIGABRT)"),
    "exit 0": (c(RIGHT + "exit(0);"), "class even: exited with 0"),
    "exit in a constructor": (c(RIGHT, "__attribute__((constructor)) static void f(void) "
                                       "{ _exit(0); }"), "load: exited with 0"),
    "divide": (c("volatile long z = 0; out[0] = n / z;"), "class even: crashed (SIGFPE)"),
    "stack": (c("out[0] = f((float)n);", "__attribute__((noinline)) static float f(float v) "
                "{ volatile char b[4096]; b[0] = (char)v; return f(v + 1) + b[0]; }"),
              "class even: crashed (SIGSEGV)"),
    "past the end": (c(RIGHT + "out[n] = 1;"), "class even: .*wrote past the end of out"),
    "far past the end": (c(RIGHT + "memset(out, 0, 1 << 26);"), "class even: crashed (SIGSEGV)"),
    "before the beginning": (c(RIGHT + "out[-3] = 1;"),
                             "class even: .*wrote before the beginning of out"),
    "past its input": (c(RIGHT + "((float *)x)[n] = 1;"), "class even: .*wrote past the end of x"),
    "kills its group": (c("kill(0, 9);", "#include <signal.h>"), "class even: crashed (SIGKILL)"),
    "kills everyone": (c("kill(-1, 9); " + RIGHT, "#include <signal.h>"), None),
    "flood": (c("for (;;) { static char b[1 << 20]; write(1, b, sizeof b); write(2, b, "
                "sizeof b); }"), "class even: printed more than 1024 KiB"),
    "closes everything": (c("for (int i = 0; i < 256; i++) close(i);" + RIGHT),
                          "class even: exited with 1"),
    "no symbol": (c(RIGHT).replace("void twice", "void thrice"), "load: .*undefined symbol: twice"),
    "not compiled": (c("this is not C;"), "does not compile: twice.c:.* error: unknown type name"),
    "unresolved": (c("nowhere(out);", "void nowhere(float *);"), "load: .*nowhere"),
    "forks for ever": (c("for (int i = 0; i < 1500; i++) if (fork() == 0) { sleep(9); _exit(0); } "
                         "sleep(9);"), "class even: started more than 1024 processes"),
}


@pytest.mark.parametrize("beyond", ["n", "-1"])
def test_baseline_that_writes_outside_its_arrays_is_detected(
        beyond: str, tmp_path: Path) -> None:
    """It doubles the poison beside its input; the poison beside its output has another value."""
    source = c(RIGHT + f"out[{beyond}] = 2 * x[{beyond}];")
    verdict = judge(tmp_path, source, incumbent=source, task=ONE_CLASS)
    where = "past the end" if beyond == "n" else "before the beginning"
    assert f"wrote {where} of out" in (verdict.rejected_reason or ""), verdict


LIKE_OTHERS = {"abort", "divide", "far past the end", "before the beginning", "unresolved",
               "forks for ever"}
"""Cases that end as another case does; test_guard tests the limit on processes, too."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in LIKE_OTHERS else ()) for name in CRASHES])
def test_every_failure_is_a_clean_verdict(name: str, bench: Bench) -> None:
    source, reason = CRASHES[name]
    verdict = bench.judge(source, plan=SHORT)
    if reason is None:
        assert verdict.correct  # the signal reached no other process
        return
    assert not verdict.valid and verdict.rejected_reason and verdict.latency_us is None
    assert re.match(reason.replace("(", r"\(").replace(")", r"\)"), verdict.rejected_reason), \
        verdict.rejected_reason


HANGS = {
    "stops itself": (c("for (;;) raise(SIGSTOP);", "#include <signal.h>"),
                     "class even: ran past its limit of 2 s"),
    "hang": (c("for (;;) ;"), "class even: ran past its limit of 2 s"),
    "sleeps": (c("sleep(1000);"), "class even: ran past its limit of 2 s"),
    "hang at load": (c(RIGHT, "__attribute__((constructor)) static void f(void) { pause(); }"),
                     "load: ran past its limit of 2 s"),
}


def test_every_hang_is_a_clean_verdict(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(HANGS)) as side_by_side:
        verdicts = side_by_side.map(lambda name: judge(
            tmp_path / name, HANGS[name][0], task=ONE_CLASS, wall_s=2.0), HANGS)
    for verdict, (_, reason) in zip(verdicts, HANGS.values(), strict=True):
        assert not verdict.valid and verdict.latency_us is None
        assert verdict.rejected_reason == reason


def test_endless_allocation_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runners.session.CALL_LIMITS", Limits(
        wall_s=20, memory_bytes=300 << 20))
    verdict = judge(tmp_path, c("for (;;) { memset(malloc(8 << 20), 1, 8 << 20); usleep(2000); }"))
    assert verdict.rejected_reason == "class even: took more than 300 MiB of memory"


def test_compiler_message_is_one_clean_line(tmp_path: Path) -> None:
    source = c("", '#error "\x1b]0;owned\x07\x1b[31m red \u202e evil"')
    reason = judge(tmp_path, source).rejected_reason or ""
    assert reason.startswith("does not compile: twice.c:")
    assert reason.isprintable() and len(reason) < 400
    missing = judge(tmp_path / "m", FAST, task=target(source="gone.c"))
    assert missing.rejected_reason == "does not compile: gone.c: No such file or directory"


def test_endless_include_is_a_compile_error(tmp_path: Path) -> None:
    verdict = judge(tmp_path, '#include "twice.c"\n')
    assert "nested depth" in (verdict.rejected_reason or "")


def test_incumbents_fault_is_not_blamed_on_the_candidate(tmp_path: Path) -> None:
    verdict = judge(tmp_path, FAST, incumbent="broken", task=ONE_CLASS)
    assert (verdict.rejected_reason or "").startswith("the incumbent does not compile")

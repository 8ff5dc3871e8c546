"""What a kernel leaves behind in its process is seen, and an honest kernel leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import devices, kernel, watch
from harness.oracle import Oracle
from harness.peer import PeerError
from harness.runners import Runners
from harness.stage import PYTHON_LIMITS
from harness.target import Target
from harness.verdict import Finding
from tests.exploits import case, problems
from tests.exploits.problems import Problem

THREADS = """
#include <pthread.h>
#include <sys/mman.h>
#include <dlfcn.h>
static volatile int sink;
static void *spin(void *unused) { for (;;) sink++; return unused; }
static void *nap(void *unused) { for (;;) pause(); return unused; }
static void start(void *(*what)(void *)) {
    static int started; pthread_t t;
    if (!started++) pthread_create(&t, 0, what, 0);
}
"""
CALL = "product(w, x, out, rows, cols);"
OPENMP = replace(problems.GEMV, target=replace(problems.GEMV.target, build=("-O2", "-fopenmp")))
PARALLEL = problems.gemv("""
    #pragma omp parallel for num_threads(2)
    for (int64_t r = 0; r < rows; r++) {
        float s = 0;
        for (int64_t c = 0; c < cols; c++) s += w[r * cols + c] * x[c];
        out[r] = s;
    }""")
FAST_MATH = replace(problems.GEMV, target=replace(problems.GEMV.target, build=("-Ofast",)))
TWO_STEPS = problems.TRITON + '''

def double(x, out):
    n = x.numel()
    half = torch.empty_like(x)
    double_kernel[(triton.cdiv(n, 64),)](x, half, n)
    out.copy_(half)
'''
RESULT = problems.TRITON + '''

@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def double(x, out):
    n = x.numel()
    tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
'''


def seen(folder: Path, problem: Problem, source: str,
         files: dict[str, str] | None = None) -> list[Finding]:
    """Return what is seen of a source that is loaded and called once on a case."""
    problem = problem.interpretable()
    target, device = problem.target, devices.find("cpu")
    place = kernel.place_on(device, target.language, scratch=str(folder), python=None, env={})
    base = Path(case.tree(folder / "base", problem, problem.incumbent))
    made = kernel.make(target, Path(case.tree(folder / "candidate", problem, source, files)),
                       "candidate", place)
    with Oracle(target, base, folder / "io", place) as oracle, Runners(PYTHON_LIMITS) as runners, \
            runners.start(made) as runner:
        made_case = oracle.make(target.classes[0], "normal")
        answer = runner.ask("keep", tensors=made_case.tensors)
        assert oracle.judge(made_case, answer["outputs"]).bad == 0
        return watch.trial(runner, made_case, target) + watch.look(runner)


HONEST: dict[str, tuple[Problem, str]] = {
    **{name: (posed, posed.honest) for name, posed in problems.ALL.items()
       if name in ("gemv", "mix", "double")},
    "slow Triton": (problems.DOUBLE, problems.DOUBLE.incumbent),
    "OpenMP": (OPENMP, PARALLEL),
    "fast math": (FAST_MATH, problems.GEMV.honest),
    "a thread that sleeps": (problems.GEMV, problems.gemv("start(nap); " + CALL, THREADS)),
    "a library of the system": (problems.GEMV, problems.gemv(
        'dlopen("libm.so.6", RTLD_NOW); ' + CALL, THREADS)),
    "scratch memory": (problems.DOUBLE, TWO_STEPS),
    "autotuned": (problems.DOUBLE, RESULT),
    "no gradients inside": (problems.MIX, problems.mix(
        "with torch.no_grad():\n    return torch.relu(x @ w)")),
    "convolution": (problems.MIX, problems.mix(
        "torch.nn.functional.conv2d(x[None, None], w[None, None, :3, :3])\nreturn work(x, w)")),
}


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_seen_of_an_honest_kernel(name: str, tmp_path: Path) -> None:
    assert seen(tmp_path, *HONEST[name]) == []


def c(body: str) -> tuple[Problem, str]:
    return problems.GEMV, problems.gemv(body + CALL, THREADS)


def mix(before: str, body: str = "return work(x, w)") -> tuple[Problem, str]:
    return problems.MIX, problems.mix(body, f"\n\n{before}\n")


def double(body: str, before: str = "") -> tuple[Problem, str]:
    return problems.DOUBLE, problems.double(body, before)


MAIN = "import sys\nmain = sys.modules['__main__']\n"
SEEN: dict[str, tuple[tuple[Problem, str], str, str]] = {
    "clock": (mix("import time\ntime.monotonic_ns = lambda: 0"), "patched", "time.monotonic_ns"),
    "synchronise": (mix("torch.cuda.synchronize = lambda *_: None"), "patched",
                    "torch.cuda.synchronize"),
    "event": (mix("torch.cuda.Event.elapsed_time = lambda *_: 0.1"), "patched", "elapsed_time"),
    "comparison": (mix("torch.allclose = lambda *_, **__: True"), "patched", "torch.allclose"),
    "tensor": (mix("real = torch.Tensor.copy_\n"
                   "torch.Tensor.copy_ = lambda self, other: real(self, other)"), "patched",
               "Tensor.copy_"),
    "builtin": (mix("import builtins\nreal = len\nbuiltins.len = lambda x: real(x)"), "patched",
                "builtins.len"),
    "json": (mix("import json\nreal = json.dumps\njson.dumps = lambda *a: real(*a)"), "patched",
             "json.dumps"),
    "method": (mix(MAIN + "real = main.Runner.block\n"
                   "main.Runner.block = lambda self, job: real(self, job)"), "patched", "block"),
    "code of a method": (mix(MAIN + "main.Runner.block.__code__ = (lambda self, job: {}).__code__"),
                         "patched", "Runner.block"),
    "code of a timer": (mix("import time_python\n"
                            "time_python.block.__code__ = (lambda a, b, c: 1).__code__"),
                        "patched", "time_python.block"),
    "name of a module": (mix("import time_python\ntime_python.perf_counter_ns = lambda: 0"),
                         "patched", "time_python.perf_counter_ns"),
    "name that hides a builtin": (mix("import time_python\ntime_python.int = float"), "patched",
                                  "time_python.int"),
    "object's own method": (mix("import sys", "frame = sys._getframe(1)\n"
                                "frame.f_locals['self'].synchronize = lambda: None\n"
                                "return work(x, w)"), "patched", "synchronize"),
    "kernel": (mix("import sys", "sys._getframe(1).f_locals['self'].function = work\n"
                   "return work(x, w)"), "patched", "kernel"),
    "trace": (mix("import sys", "sys.settrace(lambda *_: None)\nreturn work(x, w)"), "patched",
              "traced"),
    "machine code": (c("""
        unsigned char *f = (unsigned char *)((uintptr_t)dlsym(RTLD_DEFAULT, "srand") & ~4095UL);
        mprotect(f, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
        *(volatile unsigned char *)f = *f;
        mprotect(f, 4096, PROT_READ | PROT_EXEC);"""), "patched", "libc"),
    "TF32": (mix("torch.backends.cuda.matmul.allow_tf32 = True"), "global-flags", "allow_tf32"),
    "precision": (mix("torch.set_float32_matmul_precision('medium')"), "global-flags",
                  "get_float32_matmul_precision"),
    "tiny numbers": (mix("torch.set_flush_denormal(True)"), "global-flags", "tiny numbers"),
    "gradients": (mix("torch.set_grad_enabled(False)"), "global-flags", "grad"),
    "threads of torch": (mix("torch.set_num_threads(torch.get_num_threads() + 1)"),
                         "global-flags", "num_threads"),
    "environment": (mix("import os\nos.environ['NVIDIA_TF32_OVERRIDE'] = '1'"), "global-flags",
                    "NVIDIA_TF32_OVERRIDE"),
    "thread": (c("start(spin); "), "threads", "1 thread"),
    "process": (c("static int forked; if (!forked++ && !fork()) spin(0); "), "threads",
                "1 child process"),
    "memory": (c("mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, "
                 "MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); "), "hidden-code", "belongs to no file"),
    "memory with a name": (c("mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, "
                             'memfd_create("mine", 0), 0); '), "hidden-code", "memfd:mine"),
    "reference": (mix("import reference", "return reference.mix(x, w)"), "delegation",
                  "reference"),
    "reference within": (mix("", "from reference import mix as f\nreturn f(x, w)"), "delegation",
                         "reference"),
    "no launch": (double("torch.add(x, x, out=out)"), "delegation", "no Triton kernel"),
    "fallback": (double("""
try:
    double_kernel[(4,)](x, out, x.numel(), UNROLL=4)
except Exception:
    torch.add(x, x, out=out)"""), "delegation", "no Triton kernel"),
    "fig leaf": (double("double_kernel[(1,)](x, out, x.numel())\ntorch.add(x, x, out=out)"),
                 "delegation", "the same without"),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_a_kernel_changes_is_seen(name: str, tmp_path: Path) -> None:
    (problem, source), rule, words = SEEN[name]
    found = seen(tmp_path, problem, source)
    assert any(one.rule == rule and words in one.detail for one in found), found
    assert {one.severity for one in found if one.rule == rule} == \
        {"reject" if rule == "patched" else "flag"}
    assert {one.rule for one in found} == {rule}


def test_a_library_beside_the_candidate_is_seen(tmp_path: Path) -> None:
    exploit = next(one.EXPLOIT for one in case.all_modules()
                   if getattr(one, "EXPLOIT", None) is not None and one.EXPLOIT.number == 60)
    verdict = case.verdict_on(exploit, tmp_path)
    assert ("hidden-code", "runs code of kernel.so, which is neither the kernel's nor the system's"
            ) in {(one.rule, one.detail) for one in verdict.audit}, verdict


def test_a_patched_runner_makes_the_verdict_invalid(tmp_path: Path) -> None:
    problem, source = mix("import time\ntime.perf_counter = lambda: 0.0")
    verdict = case.judge(tmp_path, problem, source, static_audit=False)
    assert not verdict.valid
    assert verdict.rejected_reason == "tampered: time.perf_counter was replaced"
    assert [one.rule for one in verdict.audit if one.severity == "reject"].count("patched") == 1


class Told:
    """A runner that answers with what it was given."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def ask(self, op: str) -> dict[str, Any]:
        return self.answer


SIGN = {"rule": "patched", "detail": "len was replaced"}


@pytest.mark.parametrize("answer", [
    {}, {"seen": None}, {"seen": [SIGN] * 21}, {"seen": [{**SIGN, "rule": "praise"}]},
    {"seen": [{**SIGN, "detail": 3}]}, {"seen": ["patched"]}, {"seen": SIGN}])
def test_an_answer_that_makes_no_sense_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="makes no sense"):
        watch.look(Told(answer))  # type: ignore[arg-type]


def test_what_a_runner_says_is_made_harmless_and_short() -> None:
    told = Told({"seen": [{**SIGN, "detail": "a\x1b[31m\nb" + "c" * 5000}]})
    found = watch.look(told)  # type: ignore[arg-type]
    assert found[0].detail.startswith("a bc") and len(found[0].detail) <= watch.MOST_LETTERS


def test_what_is_known_is_not_told_twice() -> None:
    one = Finding(rule="patched", severity="reject", detail="len was replaced")
    other = replace(one, detail="id was replaced")
    assert watch.fresh([one, other, other], [one]) == [other]
    assert watch.fatal([replace(one, severity="flag")]) == ""
    assert watch.fatal([replace(one, severity="flag"), other]) == "tampered: id was replaced"


def test_the_kernel_may_be_the_references_own_file(tmp_path: Path) -> None:
    target: Target = replace(problems.MIX.target, reference="kernel.py:mix")
    assert seen(tmp_path, replace(problems.MIX, target=target), problems.MIX.honest) == []

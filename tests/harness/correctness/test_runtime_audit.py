"""The runtime audit finds what a kernel changes in its process, and nothing of honest kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.devices import inventory
from tests.exploits import problems
from tests.exploits.problems import Problem
from tests.support.judging.runtime_audit_case import CALL, THREADS, Bench, c, mix

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def gpu_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    card = next(d.id for d in inventory.inventory() if d.kind != "cpu" and not d.unusable)
    started = Bench(tmp_path_factory.mktemp("gpu"), card)
    yield started
    started.close()


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
    "compiled by torch": (problems.MIX, problems.mix(
        "return f(x, w)", "\nfrom torch._inductor.compile_worker.subproc_pool import SubprocPool\n"
        "f = lambda x, w: torch.relu(x @ w)\npool = SubprocPool(2)\n"
        "import torch._inductor.fx_passes.numeric_utils\n")),
    "convolution": (problems.MIX, problems.mix(
        "torch.nn.functional.conv2d(x[None, None], w[None, None, :3, :3])\nreturn work(x, w)")),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernel_has_no_findings(name: str, bench: Bench) -> None:
    assert bench.findings_on(*HONEST[name]) == []


HELD = """
kept = {}


def launch(x, out, n):
    if not kept:
        kept["compiled"] = double_kernel[(triton.cdiv(n, 64),)](x, out, n)
        return
    kept["compiled"][(triton.cdiv(n, 64), 1, 1)](x, out, n, 64)
"""


ON_GPU: dict[str, tuple[Problem, str]] = {
    "product": (problems.MIX_GPU, problems.MIX_GPU.honest),
    "Triton": (problems.DOUBLE, problems.DOUBLE.honest),
    "scratch memory": (problems.DOUBLE, TWO_STEPS),
    "autotuned": (problems.DOUBLE, RESULT),
    "launched as compiled": (problems.DOUBLE, problems.double("launch(x, out, x.numel())", HELD)),
    "compiled by torch": (problems.MIX_GPU, problems.mix(
        "return f(x, w)", "\nf = torch.compile(lambda x, w: torch.relu(x @ w))\n")),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_honest_kernel_has_no_findings_on_a_gpu(name: str, gpu_bench: Bench) -> None:
    assert gpu_bench.findings_on(*ON_GPU[name]) == []


def double(body: str, before: str = "") -> tuple[Problem, str]:
    return problems.DOUBLE, problems.double(body, before)


CHANGES: dict[str, tuple[tuple[Problem, str], str, str]] = {
    "object's own method": (mix("import sys", "frame = sys._getframe(1)\n"
                                "frame.f_locals['self'].synchronize = lambda: None\n"
                                "return work(x, w)"), "patched", "synchronize"),
    "kernel": (mix("import sys", "sys._getframe(1).f_locals['self'].function = work\n"
                   "return work(x, w)"), "patched", "kernel"),
    "trace": (mix("import sys", "sys.settrace(lambda *_: None)\nreturn work(x, w)"), "patched",
              "a trace or profile function was set"),
    "machine code": (c("""
        unsigned char *f = (unsigned char *)((uintptr_t)dlsym(RTLD_DEFAULT, "srand") & ~4095UL);
        mprotect(f, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
        *(volatile unsigned char *)f = *f;
        mprotect(f, 4096, PROT_READ | PROT_EXEC);"""), "patched", "libc"),
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


TAMPERED = """
import builtins, json, os, sys, time
main, length, dumps = sys.modules["kopt_child.run.runner"], len, json.dumps
block, copy = main.Runner.block, torch.Tensor.copy_
from kopt_child.run import load_python, time_python
time.monotonic_ns = lambda: 0
torch.cuda.synchronize = lambda *_: None
torch.cuda.Event.elapsed_time = lambda *_: 0.1
torch.allclose = lambda *_, **__: True
torch.Tensor.copy_ = lambda self, other: copy(self, other)
builtins.len = lambda x: length(x)
json.dumps = lambda *a: dumps(*a)
main.Runner.block = lambda self, job: block(self, job)
main.Runner.store.__code__ = (lambda self, job: {}).__code__
time_python.block.__code__ = (lambda a, b: 1).__code__
time_python.perf_counter_ns = lambda: 0
time_python.int = float
del load_python.POISON
load_python.POISON = 255.0
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.set_grad_enabled(False)
torch.set_num_threads(torch.get_num_threads() + 1)
os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
gc.disable()
sys.setswitchinterval(1)
"""


REPLACED = {"time.monotonic_ns", "torch.cuda.synchronize", "torch.cuda.Event.elapsed_time",
            "torch.allclose", "torch.Tensor.copy_", "builtins.len", "json.dumps",
            "runner.Runner.block", "runner.Runner.store", "time_python.block",
            "time_python.perf_counter_ns", "load_python.POISON"}


FLAGS = {"allow_tf32", "get_float32_matmul_precision", "flush-to-zero", "is_grad_enabled",
         "get_num_threads", "NVIDIA_TF32_OVERRIDE", "garbage collector", "switch interval"}


def test_every_patched_name_is_found(bench: Bench) -> None:
    head = TAMPERED.partition("torch.backends")[0]
    findings = bench.findings_on(*mix(head))
    assert {finding.detail for finding in findings} == {
        *(f"{name} was replaced" for name in REPLACED), "time_python.int was added"}
    assert {(finding.rule, finding.severity) for finding in findings} == {("patched", "reject")}


def test_every_changed_global_flag_is_found(bench: Bench) -> None:
    source = "torch.b" + TAMPERED.partition("torch.b")[2]
    findings = bench.findings_on(*mix(f"import gc\nimport os\nimport sys\n{source}"))
    for flag in FLAGS:
        assert any(flag in finding.detail for finding in findings), (flag, findings)
    assert {(finding.rule, finding.severity) for finding in findings} == {
        ("global-flags", "flag")}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_the_process_is_found(name: str, bench: Bench) -> None:
    (problem, source), rule, words = CHANGES[name]
    findings = bench.findings_on(problem, source)
    assert any(finding.rule == rule and words in finding.detail for finding in findings), findings
    assert {(finding.rule, finding.severity) for finding in findings} == {
        (rule, "reject" if rule == "patched" else "flag")}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["no launch", "fallback", "fig leaf"])
def test_delegated_work_is_found_on_a_gpu(name: str, gpu_bench: Bench) -> None:
    (problem, source), rule, words = CHANGES[name]
    findings = gpu_bench.findings_on(problem, source)
    assert [finding.rule for finding in findings] == [rule], findings
    assert words in findings[0].detail, findings

"""The static audit reports hostile sources, ignores honest ones and never raises."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.audit.c.tokens import tokens
from harness.audit.transfer import transfer
from harness.search.space import knobs
from harness.tasks.target import Target
from harness.tasks.task_file import load
from harness.verdict import Finding
from tests.support.judging.audit_case import (
    TRITON,
    audited_change,
    c,
    new_dependencies,
    static,
    target,
    trees,
    triton,
)
from tests.support.judging.audit_sources import (
    FILLS,
    HOSTILE_C,
    HOSTILE_PYTHON,
    JOINED,
)
from tests.support.paths import EXAMPLES

HONEST_PYTHON = {
    "autotuned": TRITON.replace("@triton.jit", "@triton.autotune(configs=[triton.Config({"
                                "'BLOCK': 64}, num_warps=2)], key=['cols'])\n@triton.jit"),
    "lru_cache on numbers": triton("b = block(x.shape[1])", "import functools\n@functools.lru_cache"
                                   "(None)\ndef block(cols):\n    return triton.cdiv(cols, 64)"),
    "allocations": triton("t = torch.empty_like(x)\nu = torch.zeros(4, device=x.device)\n"
                          "v = torch.empty((4, 4), dtype=torch.float32)"),
    "strides and views": triton("y = x.contiguous().view(-1, x.stride(0))"),
    "alignment": triton("aligned = x.data_ptr() % 16 == 0\ntable = {True: 1, False: 2}[aligned]"),
    "in-place check": triton("if x is out or x.data_ptr() == out.data_ptr(): rows = rows"),
    "None": triton("if weight is None: raise ValueError('weight')"),
    "sentinel": triton("if weight is _MISSING: raise ValueError", "_MISSING = object()"),
    "dtypes": triton("if x.dtype is torch.float16: rows = rows\nd = getattr(torch, 'float' + "
                     "'16')"),
    "graph": triton(entry="""_graphs = {}

def norm(x, weight, out):
    key = (x.shape, x.dtype)
    if key not in _graphs:
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            norm_kernel[(1,)](x, weight, out)
        _graphs[key] = g
    _graphs[key].replay()
"""),
    "scratch by shape": triton("n = x.numel()\nif n not in _scratch:\n    _scratch[n] = "
                               "torch.empty_like(x)", "_scratch = {}"),
    "split-K with atomics": TRITON.replace("tl.store(", "tl.atomic_add("),
    "math and typing": triton("b = math.ceil(cols / 64)", "import math\nfrom typing import Any"),
    "device properties": triton("p = torch.cuda.get_device_properties(x.device)\n"
                                "sms = p.multi_processor_count"),
    "current stream": triton("s = torch.cuda.current_stream().cuda_stream"),
    "streams that join": triton(JOINED),
    "streams that join in the end": triton("try:\n    with torch.cuda.stream(S):\n        pass\n"
                                           "finally:\n    torch.cuda.synchronize()",
                                           "S = torch.cuda.Stream()"),
    "streams that join in the same branch": triton(
        "if x.is_cuda:\n    " + JOINED.replace("\n", "\n    ")),
    "events that order streams": triton("e = torch.cuda.Event()\ne.record()"),
    "autograd": triton(head="class Norm(torch.autograd.Function):\n    @staticmethod\n"
                       "    def forward(ctx, x):\n        ctx.save_for_backward(x)"),
    "custom op": triton(head="@torch.library.custom_op('a::b', mutates_args=())\n"
                        "def f(x: torch.Tensor) -> torch.Tensor:\n    return x"),
    "own benchmark": TRITON + ("\nif __name__ == '__main__':\n    import time\n"
                               "    y = torch.matmul(torch.ones(2, 2), torch.ones(2, 2))\n"
                               "    print(time.perf_counter())\n"),
    "unused check": TRITON + "\ndef check(x):\n    return torch.nn.functional.softmax(x, -1)\n",
    "regular expressions": triton(head="import re\nP = re.compile('a')"),
    "docstring": '"""Faster than exec of torch.matmul in /proc/self/mem."""\n' + TRITON,
    "model.eval": triton(head="def ready(model):\n    return model.eval()"),
    "a method called compile": triton(head="def compile(x):\n    return x\ncompile(1)"),
    "inline PTX": TRITON.replace("    scale =", "    value = tl.inline_asm_elementwise('cvt.rn "
                                 "$0, $1;', '=r,r', [value], tl.float32, True, 1)\n    scale ="),
    "try import": triton(head="try:\n    from triton.tools import x\nexcept ImportError:\n"
                         "    x = None"),
    "tries another config": triton(entry="""def norm(x, weight, out):
    try:
        norm_kernel[(1,)](x, weight, out, BLOCK=2048)
    except triton.OutOfResources:
        norm_kernel[(1,)](x, weight, out, BLOCK=512)
"""),
    "wait for the GPU": triton(head="def ready():\n    torch.cuda.synchronize()"),
    "file beside the source": triton(head="import os\nHERE = os.path.dirname(__file__)\n"
                                     "T = open(os.path.join(HERE, 'table.txt')).read()"),
}


HONEST_C = {
    "headers": c(head="#include <string.h>\n#include <immintrin.h>\n#include <omp.h>"),
    "OpenMP": c('_Pragma("omp simd")\n    #pragma omp parallel for schedule(static)'),
    "memory functions": c("memset(out, 0, 4); memcpy(out, x, 4);"),
    "static scratch": c("static float *scratch; static int64_t room;\n    if (room < cols) { "
                        "free(scratch); scratch = aligned_alloc(64, cols * 4); room = cols; }"),
    "constant table": c(head="static const float table[4] = {1, 2, 3, 4};"),
    "words in comments": c("/* clock_gettime(dlsym) */ // fork() \\\n ptrace(0)"),
    "words in strings": c('const char *s = "fork() clock()"; (void)s;'),
    "own function called clock": c("(void)clock(2);", "static int clock(int x) { return x; }"),
    "fields": c("struct T { int time; } t = {0}; t.time = 2;"),
    "pasting of its own": c(head="#define OP(a, b) _mm256_##a##_##b\n#define X(n) x_ ## n"),
    "in-place check": c("if (x == out) return;"),
    "shape kept": c("static int64_t seen; if (seen != cols) seen = cols;"),
    "variables called like functions": c("int64_t nice = rows, pause = cols, sync = nice + pause; "
                                         "float tee = x[sync % cols]; out[0] = tee;"),
    "values compared": c("float prev = x[0]; if (weight[0] == prev) out[0] = 1;"),
    "huge pages": c("void *p = mmap(0, 1 << 21, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"),
    "assembly": c('__asm__ volatile("pause"); __builtin_prefetch(x);'),
    "table filled at the start": c(head=FILLS.replace(
        "BODY", "for (int i = 0; i < 9; i++) t[i] = exp2f((float)(i - 4) / 8.0f);")),
    "table beside a barrier": c('__asm__ volatile("" ::: "memory");', FILLS.replace(
        "BODY", "for (int i = 0; i < 9; i++) t[i] = 1;")),
    "table shifted": c(head=FILLS.replace(
        "BODY", "for (int i = -4; i <= 4; ++i) { const float v = i & 1; t[i + 4] = v * sqrtf(2); "
        "t[i + 4] += i < 0 ? 1 : (float)i; }")),
    "table started early": c(head=FILLS.replace("constructor", "constructor(101)").replace(
        "BODY", "double s = 0; for (int i = 0; i < 9; i++) { s += log(i + 1.0); t[i] = s; }")),
    "restrict and vectors": c("typedef float v8 __attribute__((vector_size(32), aligned(64)));"),
}


def worst(findings: list[Finding]) -> str:
    order = ("reject", "flag", "note", "")
    return min((f.severity for f in findings), key=order.index, default="")


def audit(folder: Path, language: str, source: str) -> list[Finding]:
    name = "kernel.c" if language == "c" else "kernel.py"
    return static(target(language), *trees(folder, {name: source}))


@pytest.mark.parametrize("name", HOSTILE_PYTHON)
def test_hostile_python_is_reported(tmp_path: Path, name: str) -> None:
    source, rule, severity = HOSTILE_PYTHON[name]
    findings = audit(tmp_path, "triton", source)
    assert (rule, severity) in {(f.rule, f.severity) for f in findings}, findings
    assert all("kernel.py" in f.detail for f in findings)


@pytest.mark.parametrize("name", HOSTILE_C)
def test_hostile_c_is_reported(tmp_path: Path, name: str) -> None:
    source, rule, severity = HOSTILE_C[name]
    findings = audit(tmp_path, "c", source)
    assert (rule, severity) in {(f.rule, f.severity) for f in findings}, findings


@pytest.mark.parametrize("name", HONEST_PYTHON)
def test_honest_python_raises_at_most_a_note(tmp_path: Path, name: str) -> None:
    findings = audit(tmp_path, "triton", HONEST_PYTHON[name])
    assert worst(findings) in ("", "note"), findings


@pytest.mark.parametrize("name", HONEST_C)
def test_honest_c_raises_at_most_a_note(tmp_path: Path, name: str) -> None:
    findings = audit(tmp_path, "c", HONEST_C[name])
    assert worst(findings) in ("", "note"), findings


@pytest.mark.parametrize("name", [n for n in HOSTILE_PYTHON if n != "no Python"])
def test_pattern_in_baseline_is_not_reported(tmp_path: Path, name: str) -> None:
    source = HOSTILE_PYTHON[name][0]
    edited = {"kernel.py": source + "\n# another line\nTILE = 4\n"}
    assert static(target(), *trees(tmp_path, edited, {"kernel.py": source})) == []


def test_moved_code_is_not_new(tmp_path: Path) -> None:
    old = {"kernel.py": triton(head="import time\nt = time.time()")}
    new = {"kernel.py": triton(head="import helper"), "helper.py": "import time\nt = time.time()\n"}
    assert static(target(), *trees(tmp_path, new, old)) == []


def test_second_use_of_a_pattern_is_new(tmp_path: Path) -> None:
    old = {"kernel.py": triton(head="import time\nt = time.time()")}
    new = {"kernel.py": triton("u = time.time()", "import time\nt = time.time()")}
    findings = static(target(), *trees(tmp_path, new, old))
    assert [f.rule for f in findings] == ["timing"] and "u = time.time()" in findings[0].detail


def test_helper_file_is_audited(tmp_path: Path) -> None:
    new = {"kernel.py": triton(head="import helper"), "helper.py": "import gc\ngc.get_objects()\n",
           "inc/fast.inc": "int f(void) { return fork(); }\n",
           "native.c": '#include "inc/fast.inc"\n'}
    rules = {f.rule for f in static(target(), *trees(tmp_path, new))}
    assert {"frame-walk", "threads"} <= rules


def test_module_that_shadows_torch_is_rejected(tmp_path: Path) -> None:
    for path, expected in (("torch.py", True), ("sitecustomize.py", True),
                           ("torch/__init__.py", True), ("mine/time.py", False)):
        findings = static(target(), *trees(tmp_path / path.replace("/", "_"), {path: "x = 1\n"}))
        assert (("patched", "reject") in {(f.rule, f.severity) for f in findings}) is expected


def test_python_target_may_call_libraries(tmp_path: Path) -> None:
    findings = audit(tmp_path, "python", triton("y = torch.matmul(x, weight) @ x"))
    assert findings == []


def test_finding_details_are_plain_and_short(tmp_path: Path) -> None:
    source = triton(head="exec('\x1b[31m" + "a" * 5000 + "')\n" * 50)
    for finding in audit(tmp_path, "triton", source):
        assert "\x1b" not in finding.detail and len(finding.detail) <= 700


def test_deep_and_long_sources_never_raise(tmp_path: Path) -> None:
    for index, text in enumerate(("x = " + "(" * 150 + ")" * 150, "x = " + "-" * 50_000 + "1",
                                  "x = " + "+".join("a" * 1 for _ in range(3000)),
                                  "x = a" + ".b" * 5000, "#" * (3 << 20))):
        findings = audit(tmp_path / str(index), "triton", triton(head=text))
        assert worst(findings) in ("", "flag")
    for language, text in (("triton", "#" * (3 << 20)), ("c", "/*" + "x" * (3 << 20) + "*/")):
        findings = audit(tmp_path / language, language, text)
        assert "too large" in findings[0].detail


def test_links_and_pipes_in_the_tree_are_not_opened(tmp_path: Path) -> None:
    candidate, baseline = trees(tmp_path, {})
    os.mkfifo(candidate / "pipe.py")
    (candidate / "link.py").symlink_to("/etc/passwd")
    findings = static(target(), candidate, baseline)
    assert {f.severity for f in findings} == {"flag"} and len(findings) == 1
    assert "link.py" in findings[0].detail and "pipe.py" in findings[0].detail


def configured(folder: Path, task: Target) -> str | None:
    """Return an example's source with every knob on its last choice."""
    text = (folder / task.source).read_text()
    config = {k.name: k.choices[-1] for k in knobs.find(text, language=task.language)}
    return knobs.apply(text, config, language=task.language) if config else None


@pytest.mark.parametrize("name", sorted(p.parent.name for p in EXAMPLES.glob("*/task.yaml")))
@pytest.mark.parametrize("changed", [False, True], ids=["itself", "knobs"])
def test_examples_raise_no_finding(tmp_path: Path, name: str, changed: bool) -> None:
    task = load(EXAMPLES / name / "task.yaml")
    files = {p.name: p.read_bytes() for p in (EXAMPLES / name).iterdir() if p.is_file()}
    source = configured(EXAMPLES / name, task)
    assert source is not None
    new = {task.source: source} if changed else {}
    candidate, baseline = trees(tmp_path, new, files)
    assert static(task, candidate, baseline) == []
    assert new_dependencies(task, candidate, baseline) == []
    audited = transfer(audited_change(task, candidate, baseline))
    assert audited.decision == "ACCEPT-as-real" and audited.finding() is None


WORDS = st.lists(st.sampled_from(
    ["id(", "x", ")", "[", "]", "_c", "==", "static ", "*", "last", ";", "{", "}", "if (", "#",
     "##", "\n", "\\\n", "'", '"', "/*", "//", "R\"(", "asm(", "def f(x):\n ", "import ",
     "from . import ",
     "@", "lambda: ", "global _c\n", ".data_ptr()", "sys.modules", "memcmp(", "#include <", ",",
     "class A(x):\n ", "return ", " is ", "for x in ", ":", "f'{x}'", "\t", "a.b", "=", "\0"]),
    max_size=60).map("".join)


ANY = st.one_of(st.binary(max_size=300), st.text(max_size=200).map(
    lambda text: text.encode("utf-8", "surrogatepass")), WORDS.map(str.encode))


@settings(max_examples=60, deadline=None)
@given(source=ANY, other=ANY)
def test_audit_never_raises_on_any_source(source: bytes, other: bytes) -> None:
    for language in ("triton", "c"):
        with TemporaryDirectory() as folder:
            files = {"kernel.py": source, "kernel.c": source, "other.py": other, "other.h": other,
                     "pyproject.toml": other, "setup.cfg": other, "setup.py": source,
                     "CMakeLists.txt": source}
            both = trees(Path(folder), files)
            for finding in (*static(target(language), *both),
                            *new_dependencies(target(language), *both)):
                assert finding.detail and finding.severity in ("reject", "flag", "note")
            transfer(audited_change(target(language), *both))


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(max_size=300), WORDS))
def test_tokenizer_accepts_any_text(text: str) -> None:
    assert all(token.line >= 1 for token in tokens(text))


@pytest.mark.slow
def test_tokenizer_finishes_on_long_unclosed_texts() -> None:
    for text in ('R"(' * 200_000, "/*" * 300_000, '"' * 300_000, "\\\n" * 300_000, "(" * 300_000):
        assert len(tokens(text)) <= 400_001

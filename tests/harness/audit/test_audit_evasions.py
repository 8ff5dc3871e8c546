"""The static audit follows names through re-exports and pieces, and leaves honest code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.verdict import Finding
from tests.support.judging.audit_case import (
    TRITON,
    Files,
    c,
    new_dependencies,
    static,
    target,
    trees,
    triton,
)
from tests.support.judging.audit_evasions import (
    C_SOURCES,
    PYTHON,
)

HONEST_PYTHON = {
    "numpy": triton("n = np.int64(x.shape[0])", "import numpy as np"),
    "bfloat16": triton("y = x.to(torch.bfloat16)"),
    "cast in the kernel": TRITON.replace("value * scale *", "(value * scale).to(tl.bfloat16) *"),
    "dot": TRITON.replace("tl.sum(value * value, 0)", "tl.sum(tl.dot(value, value), 0)"),
    "type by its name": triton("d = getattr(tl, str(x.dtype).split('.')[-1])"),
    "type by a table": triton("d = getattr(torch, NAMES[1])", "NAMES = {1: 'float16'}"),
    "knob by a formatted name": triton("b = getattr(Tiles, f'BLOCK_{cols}', 64)",
                                       "class Tiles:\n    BLOCK_64 = 64"),
    "attribute of a loop": triton("for name in ('BLOCK', 'WARPS'): getattr(Tiles, name)",
                                  "class Tiles:\n    BLOCK, WARPS = 64, 4"),
    "frozen dataclass": triton(head="from dataclasses import dataclass\n@dataclass(frozen=True)\n"
                               "class Plan:\n    block: int\n    def __post_init__(self):\n"
                               "        object.__setattr__(self, 'block', 64)"),
    "own attributes": triton(head="class Plan:\n    def __init__(self, **knobs):\n"
                             "        for k, v in knobs.items(): setattr(self, k, v)\n"
                             "        self.__dict__.update(knobs)\n        type(self).made = 1"),
    "partial": triton("f = functools.partial(norm_kernel, BLOCK=64)", "import functools"),
    "attrgetter": triton(head="import operator\nsize = operator.attrgetter('shape')"),
    "format": triton("s = '{0.shape} {1:.3f} {name}'.format(x, 1.0, name='norm')"),
    "interpreter": triton("i = os.environ.get('TRITON_INTERPRET') == '1'", "import os"),
    "logger": triton(head="import logging\nLOG = logging.getLogger(__name__)\nLOG.debug('ready')"),
    "warning": triton("warnings.warn('slow')", "import warnings"),
    "shape's product": triton("n = int(np.prod(x.shape)) // int(np.prod(x.shape[1:]))",
                              "import numpy as np"),
    "version": triton("new = sys.version_info >= (3, 11)", "import sys"),
    "its own module": triton("m = sys.modules[__name__]", "import sys"),
    "lock": triton("with LOCK: rows = rows", "import threading\nLOCK = threading.Lock()"),
    "weak dictionary": triton(head="import weakref\nKEPT = weakref.WeakKeyDictionary()"),
    "window": triton("w = torch.signal.windows.hann(8)"),
    "random numbers": triton("r = np.random.default_rng(1)", "import numpy as np"),
    "functions called like modules": triton("a = torch.select(x, 0, 1)\nb = copy.copy(a)\n"
                                            "helper.profile(x)\nhelper.time(x)",
                                            "import copy\nimport helper"),
    "a package's own profile": triton("p.run(x)", "from pkg import profile as p"),
    "heuristics": TRITON.replace("@triton.jit", "@triton.heuristics({'BLOCK': lambda a: "
                                 "triton.next_power_of_2(a['cols'])})\n@triton.jit"),
    "pruned configurations": TRITON.replace("@triton.jit", "@triton.autotune(configs=[triton."
                                            "Config({'BLOCK': 64}, pre_hook=zero)], key=['cols'], "
                                            "prune_configs_by={'early_config_prune': keep})\n"
                                            "@triton.jit"),
    "modules handed to builtins": triton("h = hasattr(torch, 'float8_e5m2') and dir(math)",
                                         "import math"),
    "array modules": triton("def like(xp): return xp\nlike(np)\nlike(torch)",
                            "import numpy as np"),
    "types of a context": triton(head="from types import TracebackType\nclass Held:\n"
                                 "    def __exit__(self, kind: type, t: TracebackType): ..."),
    "datetime": triton("keep = [datetime, copy]", "from datetime import datetime\n"
                       "from copy import copy"),
    "in place": triton("x.mul_(2).add_(weight)\nx[:] = 0\nout.zero_()"),
    "properties of the device": triton("p = triton.runtime.driver.active.utils."
                                       "get_device_properties(0)"),
    "PTX": TRITON.replace("    scale =", "    value = tl.inline_asm_elementwise('{ .reg .pred p; "
                          "@p exit; ex2.approx.f32 $0, $1; }', '=r,r', [value], tl.float32, True, "
                          "1)\n    scale ="),
    "static workspace": triton("global _space\nif _space is None or _space.numel() < x.numel():\n"
                               "    _space = torch.empty_like(x)", "_space = None"),
    "bytes and characters": triton(head="A = bytes([1, 2])\nB = chr(65) + 'x' * 3\nC = 'a-b'.split"
                                   "('-')\nD = '%5d|%s' % (1, 'x')\nE = '{:>4}'.format('x')"),
}


HONEST_C = {
    "exit in PTX": c('asm volatile("{ .reg .pred p; @p exit; }" ::: "memory");'),
    "prefetch in assembly": c('__asm__ volatile("prefetcht0 %0" :: "m"(*x));'),
    "variables called like functions": c("int time = 0, open = 1; int64_t select = 2;\n"
                                         "    out[0] = time + open + select;"),
    "parameters called like functions": c("(void)pick(1, 2);", "static int pick(int select, int "
                                          "pipe) { return select ? pipe : 0; }"),
    "its own name by a label": c("(void)f(1);", 'int f(int a) __asm__("f_of_mine");\n'
                                 "int f(int a) { return a; }"),
    "alias of its own": c(head='void g(void) {}\nvoid h(void) __attribute__((alias("g")));'),
    "builtins": c("__builtin_memcpy(out, x, 4); if (__builtin_expect(cols > 4, 1)) out[0] = 1;"),
    "pasting": c("OP(add, ps); X(1); K(k, n);", "#define OP(a, b) (void)_mm256_##a##_##b\n"
                 "#define X(n) (void)x_##n\n#define K(a, b) a##b"),
    "pragmas": c('_Pragma("GCC unroll 4") _Pragma("omp parallel for")\n    #pragma GCC ivdep',
                 '#pragma GCC optimize("O3")\n#pragma once'),
    "attributes": c(head="__attribute__((always_inline, hot)) static inline void f(void) {}\n"
                    "static float t[4] __attribute__((aligned(64), section(\".data.t\")));"),
    "member functions' names": c("struct S s = {.time = 1, .open = 2}; out[0] = s.time;",
                                 "struct S { int time, open; };"),
}


def audit(folder: Path, language: str, source: str, more: Files | None = None) -> list[Finding]:
    name = "kernel.c" if language == "c" else "kernel.py"
    return static(target(language), *trees(folder, {name: source, **(more or {})}))


@pytest.mark.parametrize("name", PYTHON)
def test_hidden_name_in_python_is_reported(tmp_path: Path, name: str) -> None:
    body, head, expected = PYTHON[name]
    findings = audit(tmp_path, "triton", triton(body, head), {"helper.py": "import os\n"})
    assert expected in {(f.rule, f.severity) for f in findings}, findings


@pytest.mark.parametrize("name", C_SOURCES)
def test_hidden_name_in_c_is_reported(tmp_path: Path, name: str) -> None:
    body, head, expected = C_SOURCES[name]
    findings = audit(tmp_path, "c", c(body, head))
    assert expected in {(f.rule, f.severity) for f in findings}, findings


@pytest.mark.parametrize(("language", "source"), [
    *(pytest.param("triton", source, id=name) for name, source in HONEST_PYTHON.items()),
    *(pytest.param("c", source, id=f"{name} in C") for name, source in HONEST_C.items())])
def test_honest_source_raises_no_alarm(tmp_path: Path, language: str, source: str) -> None:
    own = {"helper.py": "def time(x): ...\ndef profile(x): ...\n", "pkg/profile.py": "\n",
           "pkg/__init__.py": "\n", "tile.h": "\n", "inc/b.h": '#include "../tile.h"\n'}
    both = trees(tmp_path, {"kernel.c" if language == "c" else "kernel.py": source, **own})
    findings = [*static(target(language), *both), *new_dependencies(target(language), *both)]
    assert [f for f in findings if f.severity != "note"] == []


def test_numpy_is_not_a_new_dependency(tmp_path: Path) -> None:
    both = trees(tmp_path, {"kernel.py": triton(head="import numpy")}, {"reference.py": "\n"})
    assert new_dependencies(target(), *both) == []


def test_audit_finishes_on_deeply_nested_calls(tmp_path: Path) -> None:
    for nested in ("f" + "(1, 2)" * 60, "getattr(" * 60 + "f" + ", 'x')" * 60,
                   "f(1)" + ".get(f)(1)" * 40):
        assert audit(tmp_path / str(len(nested)), "triton", triton(f"y = {nested}")) is not None


SWOLLEN = "".join(f"#define A{n} " + f"A{n + 1} " * 90 + "\n" for n in range(9)) \
    + 'int f(void) __asm__(A0 "x");'


CUT_OFF = ["f(x,", "int x,", "int f(void) __asm__", "__asm__(L", "J(a,", "#define J(a) a##", "##",
           "_Pragma", "__attribute__((alias", SWOLLEN,
           "#define J(a, b) a##b\n" * 500 + "J(a, b);" * 5_000]


@pytest.mark.parametrize("source", CUT_OFF, ids=range(len(CUT_OFF)))
def test_audit_finishes_on_cut_off_and_expanding_c(tmp_path: Path, source: str) -> None:
    assert audit(tmp_path, "c", c(head=source)) is not None
    assert audit(tmp_path / "end", "c", c() + source) is not None


@pytest.mark.parametrize(("rule", "names"), [
    ("threads", "wordexp lio_listio aio_read getaddrinfo_a mq_notify timerfd_settime waitpid nice"),
    ("timing", "epoll_wait pselect sysinfo getloadavg sem_timedwait thrd_sleep getitimer"),
    ("files", "readv copy_file_range realpath inotify_init1 shm_unlink dprintf read mkdir"),
    ("network", "socketpair recvmsg sendto getifaddrs"),
    ("global-flags", "setrlimit prlimit64 personality mallopt"),
    ("hidden-code", "mremap sbrk longjmp sigset __builtin_apply_args")])
def test_function_that_no_kernel_needs_is_reported_without_a_header(
        tmp_path: Path, rule: str, names: str) -> None:
    for name in names.split():
        findings = audit(tmp_path / name, "c", c(f"long {name}(); {name}(0, 0);"))
        assert rule in {f.rule for f in findings if f.severity != "note"}, name

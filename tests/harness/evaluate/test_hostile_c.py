"""C kernels that attack the harness gain nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.isolation import guard
from tests.support.kernels.c_case import QUICK, RIGHT, SLOW, Bench, judge, target
from tests.support.kernels.c_case import kernel as c
from tests.support.kernels.evaluate_c_case import ONE_CLASS, SHORT
from tests.support.programs.processes import mark, marked

CAREFUL = replace(QUICK, alpha=0.001)
"""For tests that must not see a false gain."""


@pytest.fixture(autouse=True, scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share one lock between all workers of a test run, which must not time kernels at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))
        yield


EVERY_SOCKET = "for (int fd = 3; fd < 1024; fd++) { const char *s = %s; write(fd, s, strlen(s)); }"


FORGED = [
    '"garbage\\n"', '"[1, 2]\\n"', '"{}\\n"', '"\\xff\\xfe\\n"', '"{\\"outputs\\": 3}\\n"',
    '"{\\"outputs\\": [{\\"name\\": [], \\"path\\": \\"/etc/passwd\\"}]}\\n"',
    '"{\\"error\\": \\"\\\\u001b[2J gone\\"}\\n"', '"{\\"ns\\": 1}\\n{\\"ns\\": 1e999}\\n"',
    '"{\\"outputs\\": [{\\"name\\": \\"x\\", \\"dtype\\": \\"float32\\", \\"shape\\": [8192]}, '
    '{\\"name\\": \\"out\\", \\"dtype\\": \\"int8\\", \\"shape\\": [1]}]}\\n"',
]


@pytest.mark.parametrize("answer", FORGED)
def test_forged_answers_are_refused(answer: str, bench: Bench) -> None:
    verdict = bench.judge(c(RIGHT + EVERY_SOCKET % answer))
    assert (verdict.valid, verdict.latency_us) == (False, None)
    assert (verdict.rejected_reason or "").isprintable()


def test_deeply_nested_and_endless_answers_are_refused(bench: Bench) -> None:
    nested = c("char *s = malloc(1 << 20); memset(s, '[', 1 << 20); s[(1 << 20) - 1] = 10; "
               "for (int fd = 3; fd < 1024; fd++) write(fd, s, 1 << 20);")
    endless = c("static char s[1 << 20]; memset(s, 'x', sizeof s); "
                "for (;;) for (int fd = 3; fd < 1024; fd++) write(fd, s, sizeof s);")
    for source in (nested, endless):
        verdict = bench.judge(source)
        assert verdict.rejected_reason == "class even: sent an invalid answer"


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "long"])
def test_planted_output_files_are_not_followed(what: str, bench: Bench) -> None:
    """The kernel answers for its runner after planting something in place of its output."""
    plant = {"link": 'symlink("/dev/zero", p)', "fifo": "mkfifo(p, 0600)",
             "folder": "mkdir(p, 0700)",
             "long": 'fclose(fopen(p, "w")); truncate(p, 1L << 40)'}[what]
    answer = ('{\\"outputs\\": [{\\"name\\": \\"x\\", \\"dtype\\": \\"float32\\", \\"shape\\": [1]}'
              ', {\\"name\\": \\"out\\", \\"dtype\\": \\"float32\\", \\"shape\\": [1]}]}\\n')
    source = c(f"""
    DIR *d = opendir("../io");
    for (struct dirent *e; (e = readdir(d));) {{
        char p[600];
        if (!strstr(e->d_name, "-x.in")) continue;
        *strrchr(e->d_name, '-') = 0;
        snprintf(p, sizeof p, "../io/out/%s-x.out", e->d_name); {plant};
        snprintf(p, sizeof p, "../io/out/%s-out.out", e->d_name); {plant};
    }}
    const char *s = "{answer}";
    for (int fd = 3; fd < 1024; fd++) write(fd, s, strlen(s));
    sleep(100);""", "#include <dirent.h>\n#include <sys/stat.h>")
    began = time.monotonic()
    verdict = bench.judge(source, wall_s=5.0)
    assert not verdict.valid
    assert time.monotonic() - began < 60


@pytest.mark.skipif(bool(guard.confinement_problem()), reason=guard.confinement_problem())
def test_inputs_on_disk_are_not_accessible(bench: Bench) -> None:
    source = c(RIGHT + 'system("(rm -rf .. ; for f in ../io/*.in; do echo > $f; done) '
               '2>/dev/null");')
    verdict = bench.judge(source, plan=SHORT)
    assert verdict.correct


def test_daemons_do_not_outlive_the_verdict(bench: Bench) -> None:
    word = mark()
    source = c(f"""
    if (fork() == 0) {{ setsid(); if (fork() == 0)
        execlp("sleep", "{word}", "600", (char *)0); _exit(0); }}
    {RIGHT}""")
    verdict = bench.judge(source, plan=SHORT)
    assert verdict.valid is not None
    assert marked(word) == {}


@pytest.mark.slow
def test_background_load_does_not_slow_the_incumbent(tmp_path: Path) -> None:
    source = c("if (!started) { started = 1; for (int i = 0; i < 4; i++) { pthread_t t; "
               "pthread_create(&t, 0, burn, 0); } }\n" + SLOW.partition("{\n")[2][:-2],
               "#include <pthread.h>\nstatic int started; static void *burn(void *p) "
               "{ for (;;) ; return p; }")
    wanted = target(classes=ONE_CLASS.classes, build=("-O2", "-pthread"))
    verdict = judge(tmp_path, source, task=wanted, plan=CAREFUL)
    assert not verdict.valid or verdict.rows[0].outcome != "faster"


def test_runner_that_underreports_time_is_caught(bench: Bench) -> None:
    """The kernel redirects the runner's clock to one that runs at a tenth of the speed."""
    source = c(SLOW.partition("{\n")[2][:-2], """
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>
static int slow_clock(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    struct timespec now;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    extern long syscall(long, ...);
    syscall(228, id, &now);
    long long ns = (now.tv_sec * 1000000000LL + now.tv_nsec) / 10;
    t->tv_sec = ns / 1000000000LL; t->tv_nsec = ns % 1000000000LL;
    return 0;
}
__attribute__((constructor)) static void patch(void) {
    unsigned char *f = (unsigned char *)dlsym(RTLD_DEFAULT, "clock_gettime");
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void *to = (void *)slow_clock;
    memcpy(jump + 2, &to, 8);
    mprotect((void *)((uintptr_t)f & ~4095UL), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(f, jump, sizeof jump);
}
""").replace("#include <stdint.h>", "#define _GNU_SOURCE\n#include <stdint.h>", 1)
    if os.uname().machine != "x86_64":
        pytest.skip("patches x86-64 code")
    verdict = bench.judge(source)
    assert not verdict.valid
    assert (verdict.rejected_reason or "").startswith("tampered: "), verdict.rejected_reason


def test_slow_first_calls_gain_nothing(bench: Bench) -> None:
    source = c("if (calls++ < 5) usleep(20000);\n" + SLOW.partition("{\n")[2][:-2],
               "static int calls;")
    verdict = bench.judge(source, plan=CAREFUL)
    assert verdict.valid and verdict.correct
    assert verdict.rows[0].outcome != "faster"

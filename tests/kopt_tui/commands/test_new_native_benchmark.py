"""`kopt new` in a C project whose benchmark is a target of make, a shell script or a program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.manifest.load import load
from tests.support import repos
from tests.support.command_line import kopt

KERNEL = """void scale(long n, float a, float *y) {
    for (long i = 0; i < n; i++) y[i] *= a;
}
"""
MAIN = """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
void scale(long n, float a, float *y);
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
int main(void) {
    double sum = 0, us = 0;
    for (long n = 1 << 14; n <= 1 << 16; n *= 4) {
        float *y = calloc(n, 4);
        y[1] = 1;
        double began = now();
        for (int r = 0; r < 100; r++) scale(n, 1.0f, y);
        us = (now() - began) / 100;
        sum += y[1];
        LINE
        free(y);
    }
    END
}
"""
LINE = 'printf("n=%ld time: %.3f us %s\\n", n, us, y[1] == 1 ? "PASS" : "FAIL");'
END = 'printf("Kernel time: %.3f us\\nchecksum: %.1f\\n", us, sum);'
MAKEFILE = "all: prog\nprog: main.c scale.c\n\tcc -O2 -o prog main.c scale.c\n" \
    "bench: prog\n\t./prog\ntest: prog\n\t./prog > /dev/null\n"
SCRIPT = "#!/bin/bash\nset -e\ncc -O2 -o prog main.c scale.c\n./prog\n"


def made(folder: Path, line: str = "", end: str = "", files: Mapping[str, str] | None = None,
         ) -> Path:
    return repos.project(folder, {
        "main.c": MAIN.replace("LINE", line).replace("END", end), "scale.c": KERNEL,
        **(files or {})})


@pytest.mark.parametrize(("line", "end", "files", "command", "build", "check"), [
    (LINE, "", {"Makefile": MAKEFILE}, "make -s bench", "make", "check == PASS"),
    (LINE, "", {"bench.sh": SCRIPT}, "bash bench.sh", "", "check == PASS"),
    ("", END, {}, "./main", "cc -O2 -o main main.c scale.c -lm", "checksum == 2.0")])
def test_run_leads_from_a_benchmark_that_is_not_python_to_a_verdict(
        line: str, end: str, files: dict[str, str], command: str, build: str, check: str,
        tmp_path: Path) -> None:
    project = made(tmp_path / "p", line, end, files)
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    manifest = load(project / "manifest.yaml")
    assert manifest.benchmark_command == f"{command} > benchmark.txt"
    assert (manifest.build_command, manifest.edit) == (build, ("scale.c",))
    assert manifest.target.check == check
    assert set(manifest.frozen) == {"main.c", "Makefile"} & {"main.c", *files}
    verdict = kopt("evaluate", str(project / "manifest.yaml"), "--quick", "--json")
    assert '"correct": true' in verdict.stdout.replace('":true', '": true'), verdict.stderr


@pytest.mark.parametrize(("line", "end", "message"), [
    ('printf("n=%ld time: %.3f us\\n", n, us);', "",
     "or let the tests decide: --benchmark 'make -s bench > benchmark.txt && make -s test && echo "
     "PASS >> benchmark.txt'"),
    ("", 'printf("Init: %.3f us\\nLoop: %.3f us\\nchecksum: %.1f\\n", us, us, sum);',
     "several times or rates: Init us, Loop us (say which candidates should improve: --metrics "
     "'Loop us')")])
def test_output_that_leaves_something_open_names_the_flag(
        line: str, end: str, message: str, tmp_path: Path) -> None:
    project = made(tmp_path / "p", line, end, {"Makefile": MAKEFILE})
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


def test_kernel_inside_the_measuring_program_is_told_to_move(tmp_path: Path) -> None:
    text = MAIN.replace("LINE", LINE).replace("END", "").replace(
        "void scale(long n, float a, float *y);", KERNEL)
    project = repos.project(tmp_path / "p", {"all.c": text})
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 2 and "move the kernel to a file of its own" in done.stderr

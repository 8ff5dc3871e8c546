"""`kopt new` in a C project whose benchmark is by make, CMake, a shell script or a program."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.discovery.new import draft_command
from engine.discovery.project import sources
from engine.manifest.load import load
from harness.errors import InputError
from tests.support import repos
from tests.support.programs.command_line import converse, kopt

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
CMAKE = "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(prog main.c scale.c)\n"
CONFIGURED = "rm -f build/CMakeCache.txt && cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && " \
    "cmake --build build"
BUILT = CONFIGURED.replace("build/", "build/kopt/").replace(" build ", " build/kopt ") + "/kopt"
SCRIPT = "#!/bin/bash\nset -e\ncc -O2 -o prog main.c scale.c\n./prog\n"


def made(folder: Path, line: str = "", end: str = "", files: Mapping[str, str] | None = None,
         ) -> Path:
    return repos.project(folder, {
        "main.c": MAIN.replace("LINE", line).replace("END", end), "scale.c": KERNEL,
        **(files or {})})


@pytest.mark.parametrize(("line", "end", "files", "command", "build", "check"), [
    (LINE, "", {"Makefile": MAKEFILE}, "make -s bench", "make", "check == PASS"),
    (LINE, "", {"bench.sh": SCRIPT}, "bash bench.sh", "", "check == PASS"),
    ("", END, {}, "./main", "cc -O2 -o main main.c scale.c -lm", "checksum == 2.0"),
    pytest.param(LINE, "", {"CMakeLists.txt": CMAKE}, "./build/kopt/prog",
                 f"{BUILT} --target prog", "check == PASS",
                 marks=pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake"))])
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
    (project / "build").mkdir()
    (project / "build" / "CMakeCache.txt").write_text("# of another folder\n")
    assert set(manifest.frozen) == {"main.c", *files} - {"bench.sh"}
    verdict = kopt("evaluate", str(project / "manifest.yaml"), "--quick", "--json")
    assert '"correct": true' in verdict.stdout.replace('":true', '": true'), verdict.stderr


@pytest.mark.parametrize(("line", "end", "message"), [
    ('printf("n=%ld time: %.3f us\\n", n, us);', "",
     "or let the tests decide: --benchmark 'make -s bench > benchmark.txt && make -s test && echo "
     "PASS >> benchmark.txt'"),
    ('printf("n=%ld time: 0.000 us PASS\\n", n);', "",
     "row 1 of benchmark.txt: time us is '0.000', not a number above zero ("),
    ("", 'printf("Init: %.3f us\\nLoop: %.3f us\\nchecksum: %.1f\\n", us, us, sum);',
     "several times or rates: Init us, Loop us (say which candidates should improve: --metrics "
     "'Loop us')")])
def test_output_that_leaves_something_open_names_the_flag(
        line: str, end: str, message: str, tmp_path: Path) -> None:
    project = made(tmp_path / "p", line, end, {"Makefile": MAKEFILE})
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


FILES = {"Makefile": "bench:\n\tcc -O2 -o prog main.c scale.c\n\t@mkdir -p out\n"
         "\t./prog 14 > out/a.csv\n\t./prog 16 > out/b.csv\n", "main.c": """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
void scale(long n, float a, float *y);
int main(int argc, char **argv) {
    long n = 1L << atoi(argv[1]);
    float *y = calloc(n, 4);
    clock_t began = clock();
    for (int r = 0; r < 300; r++) scale(n, 1.0f, y);
    printf("n,us,wrong\\n%ld,%f,%d\\n", n, (clock() - began) / 300.0, y[1] != 0);
}
"""}
"""A benchmark that writes a table for each size."""


def test_tables_of_a_run_that_prints_none_are_named_and_the_flag_is_typed_as_it_stands(
        tmp_path: Path) -> None:
    project = made(tmp_path / "p", files=FILES)
    flag = "--benchmark 'make -s bench && cat out/*.csv > all.csv'"
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 2
    assert "benchmark.txt is empty; it wrote out/a.csv, out/b.csv (if each has a row for each " \
        f"shape: {flag})" in " ".join(done.stderr.split())
    status, screen = converse(["new", "--project", str(project), "--device", "cpu"], {
        "NAME=VALUE changes": "", "once, in a copy": "y", "it wrote out/a.csv": flag,
        "csv                all.csv": "", "in a copy, to find": "y", "config classes:": ""})
    assert status == 0, screen
    manifest = load(project / "manifest.yaml")
    assert (manifest.target.csv, manifest.target.check) == ("all.csv", "wrong == 0")


def test_end_of_the_input_ends_the_questions(tmp_path: Path) -> None:
    project = made(tmp_path / "p", files=FILES)
    status, screen = converse(["new", "--project", str(project), "--device", "cpu"], {
        "NAME=VALUE changes": "--csv out/a.csv", "csv                out/a.csv": "",
        "once, in a copy": "y", "config classes:": "\x04"})
    assert status == 2 and "the input ended" in screen
    assert screen.count("NAME=VALUE") == 3 and not (project / "manifest.yaml").exists()


def test_kernel_inside_the_measuring_program_is_told_to_move(tmp_path: Path) -> None:
    text = MAIN.replace("LINE", LINE).replace("END", "").replace(
        "void scale(long n, float a, float *y);", KERNEL)
    project = repos.project(tmp_path / "p", {"all.c": text})
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    message = " ".join(done.stderr.split())
    assert done.returncode == 2 and "move the kernel to a file of its own; or let kopt measure " \
        "it, with your reference: kopt new all.c:scale" in message


def test_kernel_of_a_library_of_headers_is_the_header_with_loops(tmp_path: Path) -> None:
    text = MAIN.replace("LINE", LINE).replace("END", "").replace(
        "void scale(long n, float a, float *y);", '#include "lib/api.h"')
    project = repos.project(tmp_path / "p", {
        "bench/main.c": text, "include/lib/api.h": '#include "lib/scale.h"\n',
        "include/lib/scale.h": KERNEL.replace("float *y", "volatile float *y"),
        "include/lib/unused.h": KERNEL})
    done = kopt("new", "--project", str(project), "--yes", "--run", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    manifest = load(project / "manifest.yaml")
    assert (manifest.edit, manifest.frozen) == (("include/lib/scale.h",), ("bench/main.c",))
    assert manifest.build_command == "cc -O2 -Iinclude -o main bench/main.c -lm"


def test_program_of_cmake_lies_in_the_folder_of_its_own_list(tmp_path: Path) -> None:
    project = made(tmp_path / "p", files={
        "CMakeLists.txt": "project(p C)\n# add_executable(old main.c)\nenable_testing()\n"
        "add_subdirectory(bench)\nadd_test(NAME t COMMAND prog)\n",
        "bench/CMakeLists.txt": "add_executable(other other.c)\n"
        "add_executable(prog\n  ${CMAKE_SOURCE_DIR}/main.c\n  ../scale.c)\n"})
    known = draft_command.infer_parameters(project, {})
    assert known["benchmark_command"].value == "./build/kopt/bench/prog > benchmark.txt"
    assert known["build_command"].value == f"{BUILT} --target prog"
    assert known["test_command"].value == \
        "cmake --build build/kopt && ctest --test-dir build/kopt --output-on-failure"
    assert known["frozen"].value == "main.c, CMakeLists.txt, bench/CMakeLists.txt"


@pytest.mark.parametrize("more", [
    "set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)\n", "add_executable(b main.c)\n"])
def test_project_whose_program_cmake_may_put_elsewhere_asks_for_the_command(
        more: str, tmp_path: Path) -> None:
    project = made(tmp_path / "p", files={"CMakeLists.txt": CMAKE + more})
    with pytest.raises(InputError, match=r"which program measures the kernel.*--benchmark "
                       r"'\./build/kopt/PROGRAM > benchmark.txt'"):
        draft_command.infer_parameters(project, {})
    known = draft_command.infer_parameters(
        project, {"benchmark_command": "./build/kopt/bin/prog > benchmark.txt"})
    assert known["build_command"].value == BUILT


def test_file_of_pytest_benchmark_is_the_table(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", {
        "scale.py": "def scale(x): return 2 * x\n",
        "test_scale.py": "from scale import scale\ndef test_it(benchmark): benchmark(scale, 1)\n"})
    known = draft_command.infer_parameters(project, {
        "benchmark_command": "python -m pytest test_scale.py --benchmark-json=out.json"})
    assert (known["csv"].value, known["edit"].value) == ("out.json", "scale.py")


def test_rule_that_a_run_would_show_names_the_run(tmp_path: Path) -> None:
    project = made(tmp_path / "p", LINE)
    done = kopt("new", "--project", str(project), "--yes", "--device", "cpu")
    assert done.returncode == 2
    assert "check could not be inferred (use --run, which runs the benchmark once and reads its " \
        "table, or --check" in " ".join(done.stderr.split())


def test_person_mends_a_build_that_fails_and_runs_the_benchmark_again(tmp_path: Path) -> None:
    project = made(tmp_path / "p", LINE, files={
        "scale.c": f"#ifndef READY\n#error no READY\n#endif\n{KERNEL}"})
    command = "cc -O2 -DREADY -o main main.c scale.c"
    status, screen = converse(["new", "--project", str(project), "--device", "cpu"], {
        "NAME=VALUE changes": "", "once, in a copy": "y", "does not build": "",
        "in a copy, to find": "n", "check is still missing": f"build_command={command}",
        f"build_command      {command}": "\x04"})
    assert "the campaign will find" not in screen and status, screen
    status, screen = converse(["new", "--project", str(project), "--device", "cpu"], {
        "NAME=VALUE changes": "", "once, in a copy": "y",
        "does not build": f"build_command={command}", f"build_command      {command}": "",
        "in a copy, to find": "y", "config classes:": ""})
    assert status == 0, screen
    assert load(project / "manifest.yaml").target.check == "check == PASS"


def test_folder_of_a_header_of_the_project_becomes_a_flag(tmp_path: Path) -> None:
    project = made(tmp_path / "p", LINE, files={
        "src/k.c": '#include "p/k.h"\n#include <math.h>\n#include "near.h"\n', "src/near.h": "",
        "inc/p/k.h": "", "a/two.h": "", "b/two.h": "", "other.c": '#include "two.h"\n'})
    paths = project / "src" / "k.c", project / "other.c"
    assert sources.header_flags(project, *paths) == ("-Iinc",)
    command = draft_command.infer_parameters(project, {})["build_command"].value
    assert command.startswith("cc -O2 -Iinc -o main main.c ")


BENCH_PY = """import csv, ctypes
library = ctypes.CDLL("./build/libaddk.so")
csv.DictWriter(open("out.csv", "w"), ["n", "us", "err"]).writeheader()
"""


def test_library_of_cmake_that_a_script_loads_names_its_sources_and_build(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "p", {
        "CMakeLists.txt": "project(p C)\nadd_subdirectory(src)\n", "bench.py": BENCH_PY,
        "src/CMakeLists.txt": "add_library(addk SHARED add.c)\n", "src/add.c": KERNEL})
    known = draft_command.infer_parameters(project, {})
    assert known["edit"].value == "src/add.c"
    assert known["build_command"].value == CONFIGURED
    for place in ("/opt/libaddk.so", "../build/libaddk.so", "libaddk.so", "./libaddk.so"):
        (project / "bench.py").write_text(BENCH_PY.replace("./build/libaddk.so", place))
        assert "cmake" not in draft_command.infer_parameters(project, {})["build_command"].value

"""Tests `kopt new` for a program in C that calls its own kernel, without any flag."""

from __future__ import annotations

from pathlib import Path

from harness.tasks import task_file
from tests.support import repos
from tests.support.programs.command_line import answer, kopt

HEAT = """#include <stdio.h>
#define N 96
static double u[N][N], v[N][N];

void step(const double *in, double *out, int n, double alpha) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            out[i * n + j] = in[i * n + j] + alpha * (in[(i - 1) * n + j] + in[(i + 1) * n + j]
                + in[i * n + j - 1] + in[i * n + j + 1] - 4 * in[i * n + j]);
}

int main() {
    for (int s = 0; s < 10; s++) step(&u[0][0], &v[0][0], N, 0.1);
    printf("%f\\n", v[N / 2][N / 2]);
}
"""


def test_program_needs_no_flags_and_no_reference(tmp_path: Path) -> None:
    """The kernel leaves the border as it is, so the first check makes its output an input too."""
    project = repos.project(tmp_path / "heat", {"heat.c": HEAT})
    done = kopt("new", "heat.c", "--yes", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "class main         n=96  (as the program calls it)" in done.stderr
    assert "out: inout, since the kernel reads it first or does not write all of it" in done.stdout
    assert "first verdict: correct on 1 config class" in done.stdout
    task = task_file.load(project / "task.yaml")
    assert (task.entry, task.reference) == ("step", "baseline")
    assert [(arg.name, arg.kind, arg.shape or arg.value) for arg in task.args] == [
        ("in", "input", ("n", "n")), ("out", "inout", ("n", "n")), ("n", "scalar", "n"),
        ("alpha", "scalar", 0.1)]
    assert task.classes[0].shape == {"n": 96}
    verdict = answer(kopt("evaluate", "manifest.yaml", "--json", cwd=project))
    assert verdict["correct"] and "reference-baseline" in str(verdict["audit"])


def test_only_the_output_that_needs_it_becomes_inout(tmp_path: Path) -> None:
    project = repos.project(tmp_path / "edges", {"edges.c": """
void edges(const float *x, float *ends, float *twice, int n) {
    for (int i = 0; i < n; i++) twice[i] = 2 * x[i];
    ends[0] = x[0];
    ends[n - 1] = x[n - 1];
}
int main() { static float x[512], y[512], z[512]; edges(x, y, z, 512); }
"""})
    done = kopt("new", "edges.c", "--yes", cwd=project)
    assert "first verdict: correct on 1 config class" in done.stdout, done.stderr
    roles = {arg.name: arg.kind for arg in task_file.load(project / "task.yaml").args}
    assert roles == {"x": "input", "ends": "inout", "twice": "output", "n": "scalar"}

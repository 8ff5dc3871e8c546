"""Tests `kopt new` for a kernel: what it infers, asks for at a terminal, and refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.manifest import load
from harness.tasks import task_file
from kopt_tui.cli.new import new_kernel
from tests.support import repos
from tests.support.programs.command_line import EXAMPLE, answer, converse, error_text, kopt

SHAPES = ("--shape", "x=rows,cols", "--shape", "weight=cols", "--shape", "out=rows,cols")
DRAFTED = (*SHAPES, "--scalar", "eps=1e-6", "--class", "tall: rows=64 cols=8",
           "--class", "wide: rows=8,cols=512")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "rmsnorm")
    (tmp_path / "rmsnorm" / "manifest.yaml").unlink(missing_ok=True)
    return tmp_path / "rmsnorm"


def test_kernel_with_a_task_file_needs_no_flags(project: Path) -> None:
    repos.git(project, "init", "-q")
    repos.git(project, "add", "-A")
    repos.git(project, "commit", "-q", "-m", "start")
    done = kopt("new", "--project", str(project))
    waits = "kopt: waiting for cpu: "  # another test's verdict may hold the lock
    assert done.returncode == 0
    assert all(line.startswith(waits) for line in done.stderr.splitlines()), done.stderr
    assert "rmsnorm in c, rmsnorm.c, 3 config classes" in done.stdout
    assert "knobs: LANES (6), CHUNK (5); 30 configurations" in done.stdout
    written = load.load(project / "manifest.yaml")
    assert (written.target_op, written.target_lang, written.gpu.device) == ("rmsnorm", "c", "cpu")
    assert (written.project, written.approval) == (str(project), "flagged")


def test_flags_set_parameters_and_the_manifest_may_lie_outside_the_project(
        project: Path, tmp_path: Path) -> None:
    path = tmp_path / "campaigns" / "mine.yaml"
    path.parent.mkdir()
    value = answer(kopt("new", str(path), "--project", str(project), "--approval", "review",
                        "--rounds", "3", "--backends", "search,inbox", "--json"))
    assert [knob["name"] for knob in value["knobs"]] == ["LANES", "CHUNK"]
    written = load.load(path)
    assert (written.project, written.max_iterations) == (str(project), 3)
    assert (written.approval, written.pool.backends) == ("review", ("search", "inbox"))


def test_flag_sets_the_command_of_an_agent(project: Path) -> None:
    command = "python3 agent.py {prompt}"
    done = kopt("new", "--project", str(project), "--yes", "--agent", command,
                "--agent-env", "MY_KEY")
    assert done.returncode == 0, done.stderr
    written = load.load(project / "manifest.yaml").pool
    assert written.backends == ("search", "split", "transform", "rewrite-template", "inbox", "cli")
    assert [(each.command, each.env) for each in written.cli] == [(command, ("MY_KEY",))]
    done = kopt("new", "--project", str(project), "--yes", "--force", "--agent", "python3 agent.py")
    assert done.returncode == 2 and "use {prompt}, the path of the task's file" in error_text(done)


def test_known_coding_agent_is_set_by_the_name_of_its_template(
        project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    done = kopt("new", "--project", str(project), "--yes", "--agent", "claude")
    assert done.returncode == 0 and "pool.cli[0]: Claude Code has no key" in done.stdout
    assert "  - {name: claude, template: claude}\n" in (project / "manifest.yaml").read_text()
    checked = kopt("manifest", str(project / "manifest.yaml"))
    assert checked.returncode == 1 and "Claude Code has no key" in checked.stdout
    done = kopt("new", "--project", str(project), "--yes", "--force", "--agent", "claud")
    assert done.returncode == 2 and "did you mean 'claude'?" in error_text(done)


def test_existing_manifest_is_not_overwritten(project: Path) -> None:
    path = project / "manifest.yaml"
    path.write_text("target_op: mine\n")
    done = kopt("new", str(path))
    assert done.returncode == 1 and "--force overwrites it" in error_text(done)
    assert path.read_text() == "target_op: mine\n"
    assert kopt("new", str(path), "--force").returncode == 0
    assert load.load(path).target_op == "rmsnorm"


@pytest.mark.parametrize(
    ("words", "part"),
    [(("--rounds", "500"), "max_iterations: expected a whole number of at most 119, got the "
                           "number 500"),
     (("--backends", "search,magic"), "pool.backends: unknown backend 'magic'"),
     (("--approval", "maybe"), "invalid choice: 'maybe'")],
)
def test_bad_values_are_refused_before_anything_is_written(
        words: tuple[str, ...], part: str, project: Path) -> None:
    done = kopt("new", str(project / "manifest.yaml"), *words)
    assert done.returncode == 2 and part in error_text(done)
    assert not (project / "manifest.yaml").exists()


def test_task_is_drafted_from_a_signature(project: Path) -> None:
    (project / "task.yaml").unlink()
    done = kopt("new", "--project", str(project), *DRAFTED)
    assert done.returncode == 0, done.stderr
    drafted, original = task_file.load(project / "task.yaml"), task_file.load(EXAMPLE / "task.yaml")
    assert drafted.args == original.args
    assert (drafted.entry, drafted.reference) == ("rmsnorm", "reference.py:rmsnorm")
    assert [row_class.name for row_class in drafted.classes] == ["tall", "wide"]


@pytest.mark.parametrize(("pragma", "flags"), [
    ("    # pragma omp parallel for", ("-O3", "-march=native", "-fopenmp")),
    ("    // #pragma omp parallel for", None)])
def test_openmp_pragmas_of_a_source_get_their_compiler_flag(
        pragma: str, flags: tuple[str, ...] | None, project: Path) -> None:
    """A compiler ignores them without it, and the kernel would be timed on one core."""
    (project / "task.yaml").unlink()
    source = (project / "rmsnorm.c").read_text()
    loop = next(line for line in source.splitlines() if line.startswith("    for ("))
    (project / "rmsnorm.c").write_text(source.replace(loop, f"{pragma}\n{loop}", 1))
    done = kopt("new", "--project", str(project), "--no-check", *DRAFTED)
    assert done.returncode == 0, done.stderr
    assert task_file.load(project / "task.yaml").build == flags
    assert ("-O3 -march=native -fopenmp  (what the source needs)" in done.stderr) is bool(flags)


def test_wrong_reference_is_reported_in_the_first_verdict(project: Path) -> None:
    reference = project / "reference.py"
    reference.write_text("def rmsnorm(x, weight, eps):\n    return x * weight\n")
    done = kopt("new", "--project", str(project), "--yes")
    assert done.returncode == 0, done.stderr
    assert re.search(r"first verdict: the kernel itself disagrees: tall: out: error 0?\.\d+ of the "
                     r"output's scale, allowed .*; fix the kernel, reference.py:rmsnorm or the "
                     "task", done.stdout), done.stdout
    assert done.stdout.splitlines()[-1] == \
        f"next: correct it, then kopt evaluate {project}/manifest.yaml"
    done = kopt("new", "--project", str(project), "--yes", "--force", "--no-check")
    assert "verdict:" not in done.stdout and "next: kopt evaluate" in done.stdout


def test_reference_that_differs_by_more_than_rounding_is_doubted_in_the_first_verdict(
        project: Path) -> None:
    """Candidates may be off by as much as the kernel itself, up to one percent."""
    reference = project / "reference.py"
    doubt = "more than rounding to float32 explains: does reference.py:rmsnorm compute the same?"
    done = kopt("new", "--project", str(project), "--yes")
    assert "first verdict: correct on 3 config classes" in done.stdout and doubt not in done.stdout
    reference.write_text(reference.read_text().replace("return ", "return 1.002 * ", 1))
    done = kopt("new", "--project", str(project), "--yes", "--force")
    assert re.search(r"first verdict: correct on 3 config classes.*; but its error is 0\.00\d+ of "
                     r"the output's scale, " + re.escape(doubt), done.stdout), done.stdout


@pytest.mark.parametrize(("body", "why"), [
    ("    x = x\n    return x.undefined\n",
     "AttributeError: 'numpy.ndarray' object has no attribute 'undefined' (reference.py:3)"),
    ("    import os\n    os._exit(3)\n", "exited with 3")])
def test_reference_that_fails_is_blamed_with_its_line(
        body: str, why: str, project: Path) -> None:
    (project / "reference.py").write_text(f"def rmsnorm(x, weight, eps):\n{body}")
    done = kopt("new", "--project", str(project), "--yes")
    assert done.returncode == 0, done.stderr
    assert f"first verdict: the reference reference.py:rmsnorm fails: {why}\n" in done.stdout
    assert done.stdout.splitlines()[-1] == \
        f"next: correct the reference, then kopt evaluate {project}/manifest.yaml"


def test_terminal_shows_each_parameter_once_and_breaks_lines_between_words(project: Path) -> None:
    (project / "reference.py").write_text("def rmsnorm(x, weight, eps):\n    return x * weight\n")
    path = str(project / "manifest.yaml")
    status, screen = converse(["new", path], {"NAME=VALUE changes": "max_iterations=4",
                                              "max_iterations     4": ""})
    assert status == 0 and screen.count("target_lang ") == 1 and screen.count("approval ") == 1
    assert "not set            target_gpu (the device's), format_command, test_command," in screen
    status, screen = converse(["evaluate", path], {})
    lines = screen[screen.index("✗ incorrect"):].splitlines()
    assert status == 1 and max(map(len, lines)) <= 80, screen
    notes = " ".join(line.strip() for line in lines)
    assert notes.count("the output's scale, allowed 0.01 (this is the baseline itself)") == 2, \
        "in the first line, and as the note of the class, which no column cuts"
    assert "- class tall: the baseline's own error is too large as well: check the" in notes


def test_first_verdict_of_a_correct_kernel_lists_its_classes(project: Path) -> None:
    value = answer(kopt("new", "--project", str(project), "--json"))
    assert value["first_verdict"] == {"correct": True, "not_judged": "",
                                      "classes": ["tall", "square", "odd"]}
    assert value["problem"] == ""


@pytest.mark.parametrize(
    ("words", "part"),
    [((), "rmsnorm: kopt needs the shape of x, the shape of weight, the shape of out, the "
          "value of eps, a config class (add --shape x=DIMS --shape weight=DIMS --shape out=DIMS "
          "--scalar eps=VALUE --class 'main: rows=1024 cols=1024')"),
     ((*SHAPES[2:], "--scalar", "eps=1", "--class", "a: rows=1 cols=1"),
      "rmsnorm: kopt needs the shape of x (add --shape x=DIMS)"),
     ((*SHAPES, "--class", "a: rows=1 cols=1"),
      "rmsnorm: kopt needs the value of eps (add --scalar eps=VALUE)"),
     ((*SHAPES, "--scalar", "eps=tiny", "--class", "a: rows=1 cols=1"),
      "the value of eps is missing or not a number (--scalar eps=1e-6)"),
     ((*SHAPES, "--scalar", "eps=1"), "rmsnorm: kopt needs a config class (add --class "
                                      "'main: rows=1024 cols=1024')"),
     ((*SHAPES, "--scalar", "eps=1", "--class", "a: rows=0"), "cannot read 'rows=0'"),
     ((*SHAPES, "--scalar", "eps=1", "--class", "a: rows=1"), "unknown name 'cols'"),
     (("--shape", "x=rows,length", *SHAPES[2:], "--scalar", "eps=1", "--class", "a: rows=1 cols=1"),
      "shape of x: 'length' is no argument of rmsnorm (write numbers, or expressions of rows, "
      "cols)"),
     (("--entry", "other"), "no function 'other' with arguments that kopt supports"),
     (("--source", "gone.c"), "the source 'gone.c' does not exist")],
)
def test_missing_flag_is_named_without_a_terminal(
        words: tuple[str, ...], part: str, project: Path) -> None:
    (project / "task.yaml").unlink()
    done = kopt("new", "--project", str(project), *words)
    assert done.returncode == 2 and part in error_text(done)
    assert not (project / "task.yaml").exists()


def test_several_tasks_need_a_choice(project: Path) -> None:
    (project / "sub").mkdir()
    shutil.copy(project / "task.yaml", project / "sub")
    done = kopt("new", "--project", str(project))
    assert done.returncode == 2
    assert error_text(done) == "the task file could be task.yaml, sub/task.yaml (use --task)"
    assert kopt("new", "--project", str(project), "--task", "task.yaml").returncode == 0


def test_empty_project_is_refused(tmp_path: Path) -> None:
    done = kopt("new", "--project", str(tmp_path))
    assert done.returncode == 2 and "no task.yaml, and no C, CUDA or HIP kernel" in error_text(done)
    assert kopt("new", "--project", str(tmp_path / "gone")).returncode == 2


def test_person_at_a_terminal_is_asked_for_missing_values(project: Path) -> None:
    (project / "task.yaml").unlink()
    answers = {"shape of x (": "rows, length",
               "shape of x: 'length' is no argument of rmsnorm (write": "rows, cols",
               "shape of weight": "cols", "shape of out": "rows,cols",
               "value of eps": "1e-6", "such as main: rows=1024 cols=1024": "rows=32 cols=32",
               "cannot read the config class": "square: rows=32",
               "unknown name 'cols'": "square: rows=32 cols=32",
               "another config class": "", "NAME=VALUE changes": "max_iterations=4",
               "max_iterations     4": "approval=sometimes",
               "'sometimes' is not one of": "approval=review", "approval           review": ""}
    status, screen = converse(["new", "--project", str(project)], answers)
    assert status == 0, screen
    assert "for a benchmark of the project: kopt new" in screen
    written = load.load(project / "manifest.yaml")
    assert (written.max_iterations, written.approval) == (4, "review")
    assert task_file.load(project / "task.yaml").classes[0].shape == {"rows": 32, "cols": 32}


@pytest.mark.parametrize(("count", "listed"), [
    (3, "3 built-in changes (a 0; a 1; a 2)"),
    (5, "5 built-in changes (a 0; a 1; a 2; and 2 more)")])
def test_changes_that_are_not_listed_are_counted(
        count: int, listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [SimpleNamespace(what=f"a {number}") for number in range(count)]
    monkeypatch.setattr(new_kernel.transformation_registry, "applicable", lambda *_: changes)
    assert f"a campaign tries {listed}; or declare" in new_kernel.without_knobs("", "c")


def test_end_of_input_at_a_question_is_one_line(project: Path) -> None:
    status, screen = converse(["new", "--project", str(project)], {"NAME=VALUE changes": "\x04"})
    assert status == 2 and "Traceback" not in screen
    assert "the input ended before an answer" in screen


def test_triton_without_a_gpu_is_said_not_to_be_timed(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE.parent / "softmax_triton", tmp_path / "p")
    done = kopt("new", "--project", str(tmp_path / "p"), "--yes", "--force", "--no-check",
                "--device", "cpu")
    assert done.returncode == 0 and new_kernel.UNTIMED in " ".join(done.stdout.split()), done.stderr


@pytest.mark.parametrize(("source", "why"), [
    ("void k(float **rows, int n) { rows[0][0] = n; }\nint main(void) { return 0; }\n",
     "no function with arguments that kopt supports: k takes float **rows (add one that is not "
     "static and takes numbers and pointers to numbers"),
    ("static void k(float *x) { *x = 0; }\n",
     "no function with arguments that kopt supports (add one that is not static")])
def test_refused_parameter_of_a_c_function_is_named(
        source: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(source)
    done = kopt("new", "k.c", "--yes", cwd=tmp_path)
    assert done.returncode == 2 and why in error_text(done)


BLEND = """#include <math.h>
#include <stdlib.h>
static void blend_ref(const float *restrict x, float *restrict y, int n) {
    for (int i = 0; i < n; i++) y[i] = 2.0f * sqrtf(fabsf(x[i])) + x[(i * 7) % n];
}
void blend(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = 2 * sqrtf(fabsf(x[i])) + x[(i * 7) % n];
}
int main(void) {
    int n = 1 << 12;
    float *a = malloc(n * sizeof(float)), *b = malloc(n * sizeof(float));
    blend(a, b, n);
}
"""


def test_reference_function_of_a_c_program_computes_in_double(tmp_path: Path) -> None:
    (tmp_path / "blend.c").write_text(BLEND)
    done = kopt("new", str(tmp_path / "blend.c"), "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and facts["first_verdict"]["correct"], done.stderr
    assert facts["reference"] == "kopt_task/blend_reference.cpp:blend_ref"
    assert facts["reference"] == task_file.load(tmp_path / "task.yaml").reference
    assert "blend_ref of the program, every float as a double" in done.stderr


def test_kernel_is_the_reference_where_it_disagrees_with_its_program(tmp_path: Path) -> None:
    (tmp_path / "blend.c").write_text(BLEND.replace("2.0f *", "2.1f *"))
    done = kopt("new", str(tmp_path / "blend.c"))
    assert done.returncode == 0, done.stderr
    assert task_file.load(tmp_path / "task.yaml").by_baseline
    assert "blend_ref of the program is not the reference, as the kernel disagrees: main: y: " \
        "error" in done.stdout and "first verdict: correct" in done.stdout
    assert not (tmp_path / "kopt_task").exists()

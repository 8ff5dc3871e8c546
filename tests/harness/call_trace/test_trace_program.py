"""A traced program behaves as it does without kopt, however it ends."""

from __future__ import annotations

import ast
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.call_trace import counts
from tests.support.judging.trace_case import KIND, SOURCE, START, TWO, counted, project, trace
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, error_text, kopt

# programs that fail or never call the function

@pytest.mark.parametrize(("program", "code", "ending"), [
    (TWO + "sys.exit(3)", 3, "failed with exit code 3"),
    (TWO + "1/0", 1, "failed with exit code 1"),
    (TWO + "os.kill(os.getpid(), 11)", -11, "was killed by SIGSEGV")])
def test_calls_before_a_failure_are_written(program: str, code: int, ending: str,
                                            tmp_path: Path) -> None:
    done = trace(project(tmp_path / "p", program=START + program), "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["exit_code"] == code
    assert done.stderr.splitlines()[-1] == (
        f"kopt: the program {ending}: the file counts its calls until then")
    assert (tmp_path / "p" / "calls.csv").read_text() == "m,n,width,calls\n2,3,4,1\n"


NEVER = [
    ("import sys", (), "kernel.py:scale: was never loaded"),
    ("import kernel", (), "kernel.py:scale: was loaded but never called ("),
    ("import kernel", ("-E",),
     "kernel.py:scale: the program started no Python that can be traced ("),
    ("import kernel; kernel.scale(1, 2)", (),
     "kernel.py:scale: 1 call could not be counted ("),
    ("import sys; sys.exit(4)", (), "kernel.py:scale: was never loaded, and the program failed "
                                    "with exit code 4"),
    ("import sys; sys.path.insert(0, 'copy'); import kernel", (), "kernel.py:scale: was never "
     "loaded, but another file of that name was: "),
]


@pytest.mark.parametrize(("program", "python", "says"), NEVER, ids=[case[2] for case in NEVER])
def test_program_without_calls_is_reported(program: str, python: tuple[str, ...], says: str,
                                           tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=program)
    (manifest.parent / "copy").mkdir()
    (manifest.parent / "copy" / "kernel.py").write_text(SOURCE)
    done = trace(manifest, python=python)
    assert done.returncode == 1 and error_text(done).startswith(says)
    assert not (manifest.parent / "calls.csv").exists()


def test_missing_function_is_reported(tmp_path: Path) -> None:
    done = trace(project(tmp_path / "p", program="import kernel"), "--of", "kernel.py:nothing")
    assert done.returncode == 1
    assert error_text(done) == ("kernel.py:nothing: could not be counted "
                                "(kernel has no function nothing)")


@pytest.mark.parametrize(("words", "says"), [
    ((), "no program is given (kopt trace MANIFEST -- COMMAND ARG...)"),
    (("--", "no-such-program"), "no-such-program: cannot be run: No such file or directory ("),
    (("--output", "none/x.csv", "--", "true"), "none/x.csv: its folder does not exist ("),
    (("--output", ".", "--", "true"), "p: is a folder ("),
    (("--of", "x.py:f", "--", "true"), "x.py: the file does not exist ("),
    (("--of", "f", "--", "true"), "--of: 'f' does not name a function ("),
    (("--of", "a b:f", "--", "true"), "a b: the file does not exist (")])
def test_wrong_usage_is_reported_in_one_line(words: tuple[str, ...], says: str,
                                             tmp_path: Path) -> None:
    manifest = project(tmp_path / "p")
    done = kopt("trace", str(manifest), *words, cwd=manifest.parent)
    assert done.returncode == 2 and says in error_text(done)


# the program's behaviour is unchanged

def test_traced_program_behaves_as_untraced(tmp_path: Path) -> None:
    """Its path, modules, streams and sitecustomize, and the name and signature of the function."""
    program = START.replace("import kernel", "import inspect, kernel") + TWO + (
        "import json, pickle, site_was_here\n"
        "print(json.dumps([sys.path[0], [p for p in sys.path if 'kopt-' in p], sys.argv, "
        "str(inspect.signature(scale)), scale.__name__, scale.__module__, "
        "pickle.loads(pickle.dumps(scale)) is scale, site_was_here.SEEN, sys.stdin.read()]))\n")
    manifest = project(tmp_path / "p", program=program)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import site_was_here\nsite_was_here.SEEN = __name__\n")
    (site / "site_was_here.py").write_text("")
    done = kopt("trace", str(manifest), "--", sys.executable, "run.py", "--json", "--", "--help",
                cwd=manifest.parent, stdin="typed",
                PYTHONPATH=f"{site}:{ROOT}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == [
        str(manifest.parent), [], ["run.py", "--json", "--", "--help"],
        "(x, out, width=4, *, mode=0)", "scale", "kernel", True, "sitecustomize", "typed"]
    assert done.stdout.splitlines()[1:] == [
        "1 call of 1 shape in 1 process", "m  n  width  calls   share  class",
        "2  3      4      1  100.0%  small",
        "- the weights do not name 1 of 2 rows, which get the smallest weight of the others (1 "
        "calls): large",
        f"wrote {manifest.parent / 'calls.csv'}; in the manifest's target: weights: calls.csv"]


def test_trace_hides_no_module_of_the_program(tmp_path: Path) -> None:
    """kopt imports only modules of the standard library, so it hides none of the program's."""
    program = "import sys\nprint(*sorted(sys.modules), file=open(sys.argv[1], 'w'))\n"
    manifest = project(tmp_path / "p", program=program)
    own = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "run.py", "plain"], cwd=manifest.parent, check=True, env=own)
    kopt("trace", str(manifest), "--", sys.executable, "run.py", "ours", cwd=manifest.parent)
    plain, ours = (set((manifest.parent / name).read_text().split()) for name in ("plain", "ours"))
    assert {name for name in ours - plain if not name.startswith("kopt_calls")} <= {
        "__future__", "mmap", "sitecustomize"}


def test_counting_code_runs_on_python_3_8() -> None:
    for file in Path(counts.OURS).glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 8))


def test_failing_sitecustomize_fails_as_without_trace(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=START + TWO)
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('of the user')\n")
    done = trace(manifest, "--json", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "RuntimeError: of the user" in done.stderr and answer(done)["calls"] == 1


def test_ctrl_c_ends_the_program_but_keeps_counts(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=START + TWO + (
        "if not os.fork():\n    scale(A(8, 8), A(8, 8))\n    print('ready', flush=True)\n"
        "    sys.stdin.readline()\nos.wait()\n"))
    leader, terminal = pty.openpty()
    words = [sys.executable, "-m", "kopt_tui.main", "trace", "manifest.yaml", "--",
             sys.executable, "run.py"]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *words], cwd=manifest.parent, stdin=terminal,
        stdout=terminal, stderr=terminal, preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL), start_new_session=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    os.close(terminal)
    shown = b""
    try:
        while b"ready" not in shown:
            shown += os.read(leader, 4096)
        os.write(leader, b"\x03")
        while b"kopt: the program was killed by SIGINT" not in shown:
            shown += os.read(leader, 4096)
    finally:
        assert process.wait(60) == 1, shown.decode()
        os.close(leader)
    assert (manifest.parent / "calls.csv").read_text() == (
        "m,n,width,calls\n2,3,4,1\n8,8,4,1\n")


def test_signal_to_kopt_ends_the_whole_program(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=START + TWO + (
        "child = os.fork()\nif child:\n    print(child, flush=True)\nsys.stdin.read()\n"))
    process = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui.main", "trace", "manifest.yaml", "--", sys.executable,
         "run.py"], cwd=manifest.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.terminate()
    assert process.wait(60) == 1
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text()
    assert (manifest.parent / "calls.csv").read_text().endswith("\n2,3,4,1\n")


@pytest.mark.slow
def test_torch_compile_is_unaffected_by_the_counter(tmp_path: Path) -> None:
    program = START + (
        "import torch\n@torch.compile(backend='eager', fullgraph=True)\n"
        "def step(x):\n    return x + kernel.scale(x, x, 4)\n"
        "step(torch.zeros(2, 3)); scale(torch.zeros(2, 3), torch.zeros(2, 3))\n")
    assert counted(project(tmp_path / "p", program=program)) == {KIND: 1}

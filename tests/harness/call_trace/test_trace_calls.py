"""`kopt trace` counts the calls of real programs by shape, and the score uses the counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.run.one_shot import OneShot
from harness.call_trace import shapes, weights
from harness.call_trace.counts import CallCount, Counts
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.judging.trace_case import KIND, START, TWO, counted, project, trace
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, error_text, kopt

# programs, and their calls by (m, n, width)

PROGRAMS: list[tuple[str, str, dict[tuple[str, ...], int]]] = [
    ("default", TWO * 3, {KIND: 3}),
    ("positional", "scale(A(8, 8), A(8, 8), 5)", {("8", "8", "5"): 1}),
    ("keywords", "kernel.scale(out=A(2, 3), width=7, x=A(2, 3))", {("2", "3", "7"): 1}),
    ("same number", TWO + "scale(A(2, 3), A(2, 3), 4.0)", {KIND: 2}),
    ("several", TWO + "scale(A(2, 5), A(2, 5), mode=3)\n" * 2, {("2", "5", "4"): 2, KIND: 1}),
    ("a list as shape", "x = A(); x.shape = [2, 3]; scale(x, x)", {KIND: 1}),
    ("by path", "import importlib.util as u\ns = u.spec_from_file_location('k', 'kernel.py')\n"
     "k = u.module_from_spec(s); s.loader.exec_module(k); k.scale(A(2, 3), A(2, 3))", {KIND: 1}),
    ("loaded again", "import importlib\nimportlib.reload(kernel).scale(A(2, 3), A(2, 3))\n",
     {KIND: 1}),
    ("calls that raise", TWO + "try: scale(A(2, 3), A(2, 3), -1)\nexcept ValueError: pass",
     {KIND: 1}),
    ("threads", "import threading\nts = [threading.Thread(target=lambda: [scale(A(2, 3), A(2, 3)) "
     "for _ in range(999)]) for _ in range(5)]\n[t.start() for t in ts]\n[t.join() for t in ts]",
     {KIND: 4995}),
    ("a fork that ends at once", TWO + "if not os.fork():\n    scale(A(2, 3), A(2, 3), 9)\n"
     "    os._exit(0)\nos.wait()\n" + TWO, {KIND: 2, ("2", "3", "9"): 1}),
    ("one that is killed", TWO + "if not os.fork():\n    for _ in range(99):\n"
     "        scale(A(2, 3), A(2, 3), 9)\n    os.kill(os.getpid(), 9)\nos.wait()\n",
     {("2", "3", "9"): 99, KIND: 1}),
    ("a subprocess", "import subprocess\nsubprocess.run([sys.executable, '-c', "
     "'from kernel import *; scale(Array(2, 3), Array(2, 3))'], check=True)", {KIND: 1}),
    ("more shapes than a page", "for n in range(700): scale(A(n, 1), A(n, 1))",
     {(str(n), "1", "4"): 1 for n in range(700)}),
]


@pytest.mark.parametrize(("program", "calls"), [case[1:] for case in PROGRAMS],
                         ids=[case[0] for case in PROGRAMS])
def test_calls_are_counted_per_shape(program: str, calls: dict[tuple[str, ...], int],
                                     tmp_path: Path) -> None:
    assert counted(project(tmp_path / "p", program=START + program)) == calls


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_calls_of_all_processes_are_counted(method: str, tmp_path: Path) -> None:
    """A pool kills its workers by a signal when its `with` block ends."""
    program = START + (
        "import multiprocessing\n"
        "def work(n):\n    return scale(A(2, n), A(2, n))\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "        pool.starmap(scale, [(A(1, 1), A(1, 1))] * 5)\n"
        "        pool.map(work, [3] * 50 + [4] * 7)\n    work(3)\n")
    assert counted(project(tmp_path / "p", program=program)) == {
        KIND: 51, ("2", "4", "4"): 7, ("1", "1", "4"): 5}


def test_source_is_found_through_a_symlink(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=START.replace("kernel", "linked") + TWO)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "linked.py").symlink_to(manifest.parent / "kernel.py")
    assert counted(manifest, PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}") \
        == {KIND: 1}


def test_numpy_arrays_and_scalars_are_counted(tmp_path: Path) -> None:
    program = START + ("import numpy as np\nx = np.zeros((2, 3))\n"
                       "scale(x, x, np.int32(4)); scale(x.T, x.T, np.float64(4)); scale(x, x)\n")
    assert counted(project(tmp_path / "p", program=program)) == {KIND: 2, ("3", "2", "4"): 1}


# another function

@pytest.mark.parametrize(("of", "calls"), [
    ("kernel.py:Model.forward", {("5", "6", "1"): 1}), ("kernel:scale", {KIND: 1}),
    ("other.py:scaled", {("7", "7", "2"): 1})])
def test_only_the_chosen_function_is_counted(
        of: str, calls: dict[tuple[str, ...], int], tmp_path: Path) -> None:
    task = {"language": "c", "source": "scale.c", "returns": False}
    manifest = project(tmp_path / "p", task=task,
                       program=START + "from other import scaled\nscaled(A(7, 7), w=2)\n"
                       "kernel.Model.forward(A(5, 6), A(5, 6), 1)\n" + TWO)
    (manifest.parent / "other.py").write_text("def scaled(x, *rest, **more):\n    pass\n")
    assert counted(manifest, "--of", of) == calls
    done = trace(manifest)
    assert done.returncode == 1 and error_text(done) == (
        "scale.c: calls of a function in c cannot be counted (name a Python function with the same "
        "arguments with --of, or write the weights by hand, as a CSV with the columns m, n, width "
        "and calls)")


# calls that cannot be counted

def notes(manifest: Path) -> str:
    return "\n".join(answer(trace(manifest, "--json"))["notes"])


def test_unusual_calls_are_reported(tmp_path: Path) -> None:
    notes_text = notes(project(tmp_path / "p", program=START + TWO + (
        "class Bad:\n    @property\n    def shape(self): raise RuntimeError('not \\x1b[1mnow')\n"
        "scale(A(2, 3, 1), A(2, 3)); scale(None, A(2, 3)); scale(3, A(2, 3))\n"
        "scale(A(2, 3), A(2, 9)); scale(Bad(), Bad())\n")))
    assert "1 call in which n differs between x and out: counted with x's value" in notes_text
    assert "1 call not counted: x has the shape [2, 3, 1], not [m, n]" in notes_text
    assert "1 call not counted: x is not an array, not [m, n]" in notes_text
    assert "1 call not counted: unreadable arguments" in notes_text
    assert "RuntimeError: not now" in notes_text


def test_hidden_dimensions_are_left_out(tmp_path: Path) -> None:
    task = {"args": [{"name": "x", "dtype": "float32", "shape": ["m", "n + 1"]},
                     {"name": "out", "dtype": "float32", "shape": ["m", "n + 1"], "role": "output"},
                     {"name": "w", "dtype": "int64", "value": "width - 1"}]}
    manifest = project(tmp_path / "p", program=START + TWO, task=task)
    assert counted(manifest) == {("2",): 1}
    assert "no argument shows n, width directly: not in the file" in notes(manifest)
    none = project(tmp_path / "q", task={"args": [
        {"name": "x", "dtype": "float32", "shape": ["2*m", "n+1", "width+1"]}]})
    done = trace(none)
    assert done.returncode == 2 and error_text(done).startswith(
        "args: no argument shows a dimension of the classes directly: m, n, width (")


def test_most_called_shapes_are_kept_at_the_limit() -> None:
    seen = tuple(CallCount(cells={"m": n, "name": "x" * 70, "big": (n,)}, calls=n + 1)
                 for n in range(5000))
    table = shapes.of_command(None, Counts(seen=seen))
    data, kept = shapes.render(table)
    read = weights.parse(data, "it")
    assert len(read.shapes) == 4096 and read.columns == ("m", "name")
    assert read.shapes[0].cells[0] == "4999" and read.shapes[0].calls == 5000
    assert kept.notes == ("not a number or string in every call, so not in the file: big",
                          "904 of 5000 shapes, 3.3% of the calls, are not in the file, which has "
                          "the most called ones")


def test_texts_are_read_back_from_the_file_as_written() -> None:
    odd = ("a,b", '"', "\x1b[1mred", " x ", "line\nline", "", "nan", "1_0", "64.0", "é", "\ud800")
    table = shapes.of_command(None, Counts(seen=tuple(
        CallCount(cells={"a": text, "b": float(n)}, calls=1) for n, text in enumerate(odd))))
    data, _ = shapes.render(table)
    read = weights.parse(data, "it")
    assert [shape.cells for shape in read.shapes] == [cells for cells, _ in table.rows]
    assert ("64", "8") in [shape.cells for shape in read.shapes]


# the score

def test_counted_calls_become_weights_of_the_classes(tmp_path: Path) -> None:
    manifest = project(tmp_path / "p", program=START + TWO * 3 + "scale(A(8, 8), A(8, 8))\n",
                       target={"kind": "kernel", "task": "task.yaml", "weights": "shapes.csv"})
    assert answer(trace(manifest, "--json", "--output", "shapes.csv"))["weights"] == "shapes.csv"
    with OneShot(manifest) as direct:
        assert [row_class.weight for row_class in direct.judged.target.classes] == [
            3.0,
            1.0,
        ] and not direct.notes


def test_shapes_without_a_class_are_reported(tmp_path: Path) -> None:
    traced = answer(trace(project(tmp_path / "p", program=START + "scale(A(9, 9), A(9, 9))"),
                          "--json"))
    assert traced["shapes"][0]["classes"] == [] and traced["weights"] == ""
    assert "no shape belongs to a class of the manifest" in traced["notes"][-1]


RUN = "\n\ndef run(m, n, data=None):\n    return m * n\n"


@pytest.mark.slow
def test_benchmark_score_is_weighted_by_calls(tmp_path: Path) -> None:
    """The candidate halves the last of four rows, which a program calls seven times of ten."""
    path = tmp_path / "p"
    fields: dict[str, Any] = {**benchmark_case.MANIFEST, "decision": {"alpha": 0.2, "looks": 4}}
    repos.project(path, {
        **benchmark_case.FILES, "kernel.py": benchmark_case.KERNEL + RUN,
        "manifest.yaml": yaml_document.dump(fields), "serve.py": (
            "import kernel\n"
            "for m, n in [(64, 32), (128, 32), (128, 64)] + [(256, 64)] * 7:\n"
            "    kernel.run(m, n=n, data=[m])\n")})
    manifest = path / "manifest.yaml"
    patch = benchmark_case.patch(manifest, tmp_path / "partly.patch",
                                 kernel_py=benchmark_case.PARTLY + RUN)

    def speedup() -> float:
        done = kopt("evaluate", str(manifest), "--patch", str(patch), "--json")
        speedup: float = answer(done)["speedup"]
        return speedup

    assert speedup() == pytest.approx(2 ** 0.25, rel=1e-2)
    assert error_text(trace(manifest, program="serve.py")).startswith(
        "--of: a command target does not say which function to count (--of FILE.py:FUNCTION")
    traced = answer(trace(manifest, "--json", "--of", "kernel.py:run", program="serve.py"))
    assert traced["columns"] == ["m", "n"] and traced["shapes"][0]["share"] == 0.7
    assert traced["notes"] == [
        "not a number or string in every call, so not in the file: data"]
    weighed = {**fields, "target": {**fields["target"], "weights": traced["weights"]}}
    manifest.write_text(yaml_document.dump(weighed))
    assert speedup() == pytest.approx(2 ** 0.7, rel=1e-2)


def test_only_declared_columns_are_counted(tmp_path: Path) -> None:
    target = {**benchmark_case.MANIFEST["target"], "configs": ["m <= 64", "batch"]}
    path = benchmark_case.project(tmp_path / "p", target=target)
    (path.parent / "program.py").write_text(
        "from helper import run\nrun(1, 2, 0.5); run(1, 3, 0.5); run(m=2, n=2)\n")
    (path.parent / "helper.py").write_text("def run(m, n, eps=1e-6):\n    pass\n")
    traced = answer(trace(path, "--json", "--of", "helper:run", program="program.py"))
    assert [(shape["shape"], shape["calls"]) for shape in traced["shapes"]] == [({"m": "1"}, 2),
                                                                                ({"m": "2"}, 1)]
    assert traced["notes"] == [
        "not a number or string in every call, so not in the file: batch"]

"""Task files: what is read, and what is refused with which line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.formats.expression import evaluate_expression
from harness.tasks import task_file
from harness.tasks.target import Target
from tests.support.paths import EXAMPLES

EXAMPLES = sorted((EXAMPLES).glob("*/task.yaml"))
GOOD = """\
op: scale
language: c
source: scale.c
entry: scale
reference: reference.py:scale
args:
  - {name: x, dtype: float32, shape: [rows, 2*cols]}
  - {name: out, dtype: float32, shape: [rows, cols], role: output}
  - {name: n, dtype: int64, value: rows*cols}
  - {name: eps, dtype: float32, value: 1e-6}
classes:
  - {name: tall, shape: {rows: 100, cols: 3}, core: true}
  - {name: wide, shape: {rows: 2, cols: 500}, weight: 2, tolerance: 1e-3}
flops: 3*rows*cols
"""


def read(tmp_path: Path, text: str) -> Target:
    path = tmp_path / "task.yaml"
    path.write_text(text)
    return task_file.load(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_example_tasks_are_valid(path: Path) -> None:
    task = task_file.load(path)
    assert len(task.classes) >= 3
    assert all(min(task.work(c)) > 0 for c in task.classes)
    assert (path.parent / task.source).is_file() and (path.parent / task.reference_file).is_file()


def test_task_sizes_are_resolved(tmp_path: Path) -> None:
    task = read(tmp_path, GOOD)
    tall, wide = task.classes
    assert [t.shape for t in task.tensors(tall)] == [(100, 6), (100, 3), (), ()]
    assert [t.value for t in task.tensors(tall)] == [None, None, 300, 1e-6]
    assert [t.role for t in task.tensors(tall)] == ["input", "output", "scalar", "scalar"]
    assert task.work(tall) == (900.0, 4.0 * (600 + 300))
    assert (task.tolerance_of(tall), task.tolerance_of(wide)) == (1e-5, 1e-3)
    assert (task.reference_file, task.reference_function) == ("reference.py", "scale")
    assert read(tmp_path, GOOD.replace("weight: 2", "weight: 3")).content_hash != task.content_hash


def edit(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


BAD = [
    ("", "task.yaml: is empty"),
    ("- 1", "task.yaml:1: expected a mapping (`key: value` lines), got a list"),
    ("op: [", "task.yaml:1: not YAML: "),
    ("op: x", "task.yaml:1: the key 'language' is missing"),
    (edit("source:", "sorce:"), "task.yaml:3: unknown key 'sorce' (did you mean 'source'?)"),
    (edit("language: c", "language: rust"),
     "task.yaml:2: language: 'rust' is not one of c, cuda, hip, python, triton"),
    (edit("{name: x, dtype: float32", "{name: x, dtype: float31"),
     "task.yaml:7: argument 'x': unknown dtype 'float31' (did you mean 'float32'?)"),
    (edit("shape: [rows, 2*cols]", "shape: [rows, 2*col]"),
     "task.yaml:7: class 'tall', x: unknown name 'col' in '2*col' (a class's shape gives rows, "
     "cols)"),
    (edit("2*cols]", "cols/2]"), "task.yaml:7: class 'tall', x: 'cols/2' gives 1.5, a whole number "
                                 "is needed (use // to divide)"),
    (edit("2*cols]", "cols-3]"), "task.yaml:12: class 'tall': x has shape [100, 0]"),
    (edit("2*cols]", "-1*cols, -1]"), "task.yaml:12: class 'tall': x has shape [100, -3, -1]"),
    (edit("rows: 100", "rows: 9000000000"), "task.yaml:12: class 'tall': x has shape"),
    (edit("cols], role: output", "cols], role: outptu"),
     "task.yaml:8: args[1].role: 'outptu' is not one of input, output, inout, scalar (did you "
     "mean 'output'?)"),
    (edit(", role: output", ""), "task.yaml:6: the task has no output (mark an argument with role: "
                                 "output)"),
    (edit("value: rows*cols", "value: rows**cols"),
     "task.yaml:9: class 'tall', n: cannot evaluate 'rows**cols' (use + - * / // % on shape "
     "names)"),
    (edit(", value: rows*cols", ""), "task.yaml:9: scalar 'n' has no value"),
    (edit("dtype: int64, value: rows*cols", "dtype: int8, value: rows*cols"),
     "task.yaml:9: argument 'n': 300 is not of type int8"),
    (edit("name: out", "name: x"), "task.yaml:8: 'x' is declared twice"),
    (edit("name: wide", "name: tall"), "task.yaml:13: 'tall' is declared twice"),
    (edit("name: wide", "name: ../up"), "task.yaml:13: '../up' is not a name"),
    (edit("weight: 2", "weight: 0"), "task.yaml:13: class 'wide': weight must be above 0"),
    (edit("weight: 2", "weight: heavy"),
     "task.yaml:13: classes[1].weight: expected a number, got the text 'heavy'"),
    (edit("tolerance: 1e-3", "tolerance: -1"),
     "task.yaml:13: class 'wide': tolerance must be from 0 to 1"),
    (edit("cols: 500", "cols: many"),
     "task.yaml:13: classes[1].shape: every value must be a whole number"),
    (edit("source: scale.c", "source: /etc/passwd"),
     "task.yaml:3: '/etc/passwd' must lie inside the project"),
    (edit("reference: reference.py", "reference: ../reference.py"),
     "task.yaml:5: '../reference.py' must lie inside the project"),
    (edit("flops: 3*rows*cols", "flops: 3*rows*cols/0"), "task.yaml:14: class 'tall', flops: "
                                                         "cannot evaluate '3*rows*cols/0'"),
    (edit("flops: 3*rows*cols", "flops: -1*rows"), "task.yaml:14: class 'tall': flops is -100"),
    (edit("flops: 3*rows*cols", "flops: 1e300*1e300"), "task.yaml:14: class 'tall': flops is inf"),
    (edit("flops: 3*rows*cols", "returns: true"),
     "task.yaml:14: a C kernel cannot return values (use role: output)"),
    (GOOD[:GOOD.index("classes")] + "classes: []\n",
     "task.yaml:11: a task needs 1 to 256 config classes"),
    (edit("{name: x, dtype: float32,", "{name: x, dtype: float32, low: 2, high: 1,"),
     "task.yaml:7: argument 'x': low must be below high"),
    (edit("weight: 2", "data: {x: 'pages:x'}"),
     "task.yaml:13: class 'wide': all inputs are read from files, so a kernel could remember the "
     "answer (leave one out, so that it is drawn)"),
    (edit("weight: 2", "data: {out: 'pages:x'}"),
     "task.yaml:13: class 'wide': out: 'pages:x' cannot be read as data"),
    ("a: &a [1]\nb: *a\n", "task.yaml:2: the alias *a is not allowed"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_task_error_names_the_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    first_line = str(caught.value).removeprefix(f"{tmp_path}/")
    assert first_line.startswith(message), first_line
    assert "\n" not in first_line and caught.value.exit_code == 2


def test_unreadable_task_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.yaml", Path("/dev/zero")):
        with pytest.raises(InputError):
            task_file.load(path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        task_file.load(tmp_path / "binary")


@pytest.mark.parametrize(("expression", "value"), [
    ("2*m*n", 30), ("m + n - 1", 7), ("m // 2", 1), ("m % 2", 1), ("-m", -3), ("n / 2", 2.5),
    (7, 7), (0.5, 0.5), ("1e-6", 1e-6), ("(m + n) * (m - n)", -16),
])
def test_arithmetic_is_evaluated(expression: str | float, value: float) -> None:
    assert evaluate_expression(expression, {"m": 3, "n": 5}) == value


@pytest.mark.parametrize("expression", [
    "m ** 2", "m << 9", "__import__('os')", "m.real", "f(m)", "[m]", "m if n else 1", "m == n",
    "lambda: 1", "'a' * 9", "True", "1j", "m @ n", "~m", "m; n", "", " ", "(", "x", "m\n+n", "\0",
    "(" * 199, "-" * 199 + "1", "1" * 201, "9" * 190 + "/0", "m & n", "{m}", "m := 3", "None",
])
def test_only_arithmetic_is_allowed(expression: str) -> None:
    try:
        value = evaluate_expression(expression, {"m": 3, "n": 5})
    except InputError as error:
        assert "\n" not in str(error) or "\n" in expression
    else:
        assert expression == "-" * 199 + "1" and value == -1


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="mn0123456789+-*/%(). e_[]'", max_size=60))
def test_expressions_give_a_number_or_an_input_error(expression: str) -> None:
    try:
        value = evaluate_expression(expression, {"m": 3, "n": 5})
    except InputError:
        return
    assert isinstance(value, int | float)

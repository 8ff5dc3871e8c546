"""Tests which reference is found in a test: what it compares the watched result with."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from engine.discovery.watched import entry_source, first_check
from engine.discovery.watched.expected import reference_source, statement_names
from engine.discovery.watched.expected.reference_source import FoundReference
from harness.call_trace.watched_calls import (
    ObservedCall,
    ObservedCaller,
    ObservedLocal,
    ObservedValue,
    WatchedProgram,
)
from harness.isolation.process_outcome import ProcessOutcome
from tests.support.kernels import watched_case

KERNEL = "def f(x, w, eps=0.1): ..."
X = ObservedValue(kind="tensor", dtype="float32", shape=(4, 6), stride=(6, 1))
W = ObservedValue(kind="tensor", dtype="float32", shape=(6,), stride=(1,))
CALL = ObservedCall(args={"x": X, "w": W}, calls=1, returned=(X,), same=("",))
LOCALS = (ObservedLocal(name="a", value=X, argument="x"),
          ObservedLocal(name="w", value=W, argument="w"),
          ObservedLocal(name="y", value=X, output=0))


def find_reference(tmp_path: Path, body: str, *more: ObservedLocal, head: str = "",
                   call: ObservedCall = CALL) -> tuple[FoundReference | None, str]:
    """Return the reference of a test with `body` after `y = f(a, w)`, or why there is none."""
    top = f"import torch\n{head}\n\ndef test():\n    a, w = make()\n    y = f(a, w)\n"
    (tmp_path / "test_f.py").write_text(top + "".join(f"    {line}\n" for line in body.split("; ")))
    lines = top.splitlines()
    caller = ObservedCaller(
        file=str(tmp_path / "test_f.py"), function="test", call=call, locals=(*LOCALS, *more),
        first_line=lines.index("def test():") + 1, line=lines.index("    y = f(a, w)") + 1)
    return reference_source.find([caller], entry_source.find(KERNEL, "f", "k.py"), ["x", "w"],
                                 tmp_path)


def body_of(found: FoundReference) -> list[str]:
    lines = found.source.splitlines()
    heads = ("def f(", "def norm(", "def gather(")
    at = next(index for index, line in enumerate(lines) if line.startswith(heads))
    return [line.strip() for line in lines[at:]]


def close_local(name: str) -> ObservedLocal:
    """Return a variable whose value is close to the result."""
    return ObservedLocal(name=name, value=X, near=0)


def test_argument_that_is_filled_and_returned_is_one_output(tmp_path: Path) -> None:
    call = replace(CALL, written=("x",), same=("x",))
    found, why = find_reference(
        tmp_path, "ref = a * w; torch.testing.assert_close(y, ref)",
        ObservedLocal(name="z", value=X, output=1), ObservedLocal(name="ref", value=X, near=1),
        call=call)
    assert found is not None, why
    assert found.outputs == (0,) and body_of(found)[-1] == "return ref"


def test_reference_found_in_a_whole_program_is_self_contained() -> None:
    entry, observed, path = watched_case.observe("norm")
    reference, _ = reference_source.find(
        observed.callers, entry, ["x", "weight", "eps", "mode"], path)
    assert reference is not None and "def torch_norm(x, w, eps):" in reference.source
    assert body_of(reference)[1:] == ["w = weight", "expected = torch_norm(x, w, 1e-05)",
                                      "return expected"]


@pytest.mark.slow
def test_difference_of_a_script_is_a_comparison() -> None:
    entry, observed, path = watched_case.observe("gather")
    reference, _ = reference_source.find(observed.callers, entry,
                                         ["out", "table", "index", "cols"], path)
    assert reference is not None and body_of(reference)[1:] == ["return table[index.long()]"]


def test_parameter_of_a_module_that_was_passed_is_the_argument(tmp_path: Path) -> None:
    layer = ObservedLocal(name="layer.weight", value=W, argument="w")
    reference, why = find_reference(
        tmp_path, "torch.testing.assert_close(y, torch.relu(a) * layer.weight)", layer)
    assert reference is not None, why
    assert body_of(reference) == ["def f(x, w):", "a = x", "return torch.relu(a) * w"]


def test_expression_in_the_comparison_itself_is_taken(tmp_path: Path) -> None:
    reference, _ = find_reference(tmp_path, "torch.testing.assert_close(y, torch.relu(a) * w)")
    assert reference is not None
    assert body_of(reference) == ["def f(x, w):", "a = x", "return torch.relu(a) * w"]


def test_variable_close_to_the_result_is_taken_without_a_comparison(tmp_path: Path) -> None:
    reference, _ = find_reference(
        tmp_path, "ref = a.float(); ref += 1; mine(ref, y)", close_local("ref"))
    assert reference is not None
    assert body_of(reference)[1:] == ["a = x", "ref = a.float()", "ref += 1", "return ref"]


def test_call_that_fills_its_argument_belongs_to_the_reference(tmp_path: Path) -> None:
    reference, _ = find_reference(
        tmp_path, "ref = torch.empty_like(a); fill(ref, a); assert_close(y, ref)",
        close_local("ref"), head="def fill(out, x):\n    out.copy_(x)\n")
    assert reference is not None and "def fill(out, x):" in reference.source
    assert body_of(reference)[2:] == ["ref = torch.empty_like(a)", "fill(ref, a)", "return ref"]


def test_module_of_a_folder_from_which_the_program_imported_is_importable(tmp_path: Path) -> None:
    (tmp_path / "src" / "fast").mkdir(parents=True)
    caller = ObservedCaller(
        file=str(tmp_path / "test_f.py"), function="<module>", call=CALL, first_line=1, line=3,
        locals=LOCALS, paths=("/gone", str(tmp_path), str(tmp_path / "src")))
    Path(caller.file).write_text(
        "from fast import relu\nfrom k import f\ny = f(a, w)\nassert_close(y, relu(a))\n")
    reference, why = reference_source.find(
        [caller], entry_source.find(KERNEL, "f", "k.py"), ["x", "w"], tmp_path)
    assert reference is not None, why
    assert "sys.path[:0] = [str(ROOT), str(ROOT / 'src')]" in reference.source


def test_variable_of_the_test_becomes_a_size_of_an_argument(tmp_path: Path) -> None:
    local = ObservedLocal(name="n", value=ObservedValue(kind="number", value=6))
    reference, _ = find_reference(
        tmp_path, "ref = norm(a, (n,)); assert_close(y, ref)", close_local("ref"), local,
        head="from torch.nn.functional import layer_norm as norm")
    assert reference is not None and "n = x.shape[1]" in body_of(reference)
    assert "from torch.nn.functional import layer_norm as norm" in reference.source


def test_lengths_of_the_test_are_those_of_the_argument(tmp_path: Path) -> None:
    lengths = ObservedLocal(name="lengths", value=ObservedValue(kind="tuple", value=(1, 3)))
    call = replace(CALL, integers={"w": (1, 3)})
    found, why = find_reference(
        tmp_path, "ref = torch.stack([a.mean() for _ in lengths]); torch.allclose(y, ref)",
        lengths, close_local("ref"), call=call)
    assert found is not None, why
    assert body_of(found)[1:3] == ["a = x", "lengths = w.tolist()"]


@pytest.mark.parametrize(("statement", "names"), [
    ("for i in range(n):\n    part = x[i]\n    y[i] = part + last\n    last = part",
     {"range", "n", "x", "y", "last"}),
    ("while n:\n    half = x\n    n = half", {"n", "x"}),
    ("with guard() as g:\n    a = x\n    b = a", {"guard", "x"})])
def test_blocks_read_what_they_do_not_define_first(statement: str, names: set[str]) -> None:
    assert statement_names.loads(ast.parse(statement).body[0]) == names


@pytest.mark.parametrize("body", [
    "torch.manual_seed(0); ref = torch.relu(a); assert_close(y, ref)",
    "ref = torch.relu(a); ref.backward(torch.randn_like(ref)); assert_close(y, ref)"])
def test_seed_and_backward_do_not_belong_to_the_expected_result(
        body: str, tmp_path: Path) -> None:
    reference, why = find_reference(tmp_path, body, close_local("ref"))
    assert reference is not None, why
    assert body_of(reference)[1:] == ["a = x", "ref = torch.relu(a)", "return ref"]


def test_branch_may_read_what_it_defines(tmp_path: Path) -> None:
    body = "if a.dim() == 2:;     ref = torch.relu(a);     ref = ref * w; else:;     ref = a; " \
        "assert_close(y, ref)"
    reference, why = find_reference(tmp_path, body, close_local("ref"))
    assert reference is not None, why
    assert body_of(reference)[1:] == [
        "a = x", "if a.dim() == 2:", "ref = torch.relu(a)", "ref = ref * w", "else:", "ref = a",
        "return ref"]


def test_device_of_the_test_is_that_of_the_arguments(tmp_path: Path) -> None:
    reference, why = find_reference(
        tmp_path, "assert_close(y, torch.relu(a) + torch.ones(6, device=DEVICE))",
        head="DEVICE = driver.active.get_active_torch_device()")
    assert reference is not None, why
    assert "DEVICE = x.device" in body_of(reference) and "driver" not in reference.source


@pytest.mark.parametrize(("source", "place"), [
    ("import torch\n\n\nf(1)\n", "own.py:4"),
    ("import torch\n\nif __name__ == '__main__':\n    f(1)\n", "")])
def test_call_when_a_file_is_imported_is_found(source: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(source)
    caller = ObservedCaller(file=str(tmp_path / "own.py"), function="<module>", first_line=1,
                            line=4, call=CALL, locals=())
    observed = WatchedProgram(callers=(caller,), outcome=ProcessOutcome(ended="exit", returncode=0))
    assert first_check.on_import(observed, tmp_path, "own.py") == place


@pytest.mark.parametrize(("body", "lines"), [
    ("r = torch.relu(a) * w; r.sum().backward(); y.sum().backward(); assert_close(y, a.grad)",
     ["a = x", "r = torch.relu(a) * w", "r.sum().backward()", "return (a.grad).detach()"]),
    ("r = torch.relu(a); (g,) = torch.autograd.grad(r, (a,), w); assert_close(y, g)",
     ["a = x", "r = torch.relu(a)", "g, = torch.autograd.grad(r, (a,), w)",
      "return (g).detach()"])])
def test_gradients_that_a_test_compares_with_are_computed_by_autograd(
        body: str, lines: list[str], tmp_path: Path) -> None:
    reference, why = find_reference(tmp_path, body, close_local("g"))
    assert reference is not None, why
    assert body_of(reference)[1:] == [
        "x = x.detach().requires_grad_()", "w = w.detach().requires_grad_()",
        "with torch.enable_grad():", *lines]


@pytest.mark.parametrize(("body", "why"), [
    ("ref = torch.randn(4, 6) + a; assert_close(y, ref)", "drawn with rand"),
    ("ref = y + 0; assert_close(y, ref)", "computed from the function's own"),
    ("print(y)", "compares the result with nothing"),
    ("ref = other * a; assert_close(y, ref)", "uses 'other', which is not an argument")])
def test_unusable_reference_is_refused_with_the_reason(
        body: str, why: str, tmp_path: Path) -> None:
    more = () if "print" in body else (close_local("ref"),)
    reference, reason = find_reference(tmp_path, body, *more)
    assert reference is None and why in reason and "test_f.py:6" in reason


def test_variable_is_a_size_only_if_it_is_one_in_every_call(tmp_path: Path) -> None:
    """With n=4, a call with 4 rows suggests that n is the row count; one with 5 disproves it."""
    top = "def test(n):\n    y = f(a, w)\n    assert_close(y, a.expand(n, 6))\n"
    (tmp_path / "test_f.py").write_text(top)

    def caller(rows: int, n: int) -> ObservedCaller:
        x = ObservedValue(kind="tensor", dtype="float32", shape=(rows, 6), stride=(6, 1))
        return ObservedCaller(
            file=str(tmp_path / "test_f.py"), function="test", first_line=1, line=2,
            call=ObservedCall(args={"x": x, "w": W}, calls=1, returned=(x,), same=("",)),
            locals=(ObservedLocal(name="n", value=ObservedValue(kind="number", value=n)), *LOCALS))

    entry = entry_source.find(KERNEL, "f", "k.py")
    for rows, line in ((4, "n = x.shape[0]"), (5, "n = 4")):
        reference, _ = reference_source.find([caller(4, 4), caller(rows, 4)], entry, ["x", "w"],
                                             tmp_path)
        assert reference is not None and line in body_of(reference)

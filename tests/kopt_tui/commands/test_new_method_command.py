"""`kopt new FILE:Class.method -- PROGRAM` makes tasks from methods and backward passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.tasks import task_file
from tests.support import repos
from tests.support.kernels import watched_case
from tests.support.programs.command_line import answer, error_text, kopt

TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def _times(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * tl.load(y + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)


def times(x, y):
    out = torch.empty_like(x)
    _times[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 64)
    return out


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return times(x.contiguous(), y.contiguous())

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return times(grad.contiguous(), y), times(grad.contiguous(), x)


class Gate(torch.nn.Module):
    def __init__(self, rows, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(rows, cols))

    def forward(self, x):
        return Product.apply(x, self.weight)
"""
TEST = """\
import torch
from gate import Gate, Product


def test_gate():
    gate = Gate(3, 40)
    x = torch.randn(3, 40, requires_grad=True)
    torch.testing.assert_close(gate(x), x * gate.weight)


def test_product():
    x, y = torch.randn(3, 40, requires_grad=True), torch.randn(3, 40, requires_grad=True)
    torch.testing.assert_close(Product.apply(x, y), x * y)


test_gate()
test_product()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "words", "results"), [
    ("Gate.forward", ("--backward",), 3), ("Product.apply", (), 1)])
def test_method_and_backward_pass_that_a_test_calls_get_a_correct_verdict(
        entry: str, words: tuple[str, ...], results: int, tmp_path: Path) -> None:
    project = tmp_path / "ops"
    repos.project(project, {"gate.py": TRITON, "test_gate.py": TEST})
    value = answer(kopt("new", f"gate.py:{entry}", *words, "--yes", "--json", "--device", "cpu",
                        "--", sys.executable, "test_gate.py", cwd=project))
    assert value["first_verdict"]["correct"]
    assert value["reference"] == "kopt_task/reference.py:" + (
        "with_gradients" if words else "forward")
    assert len(task_file.load(project / "task.yaml").output_dtypes) == results
    (project / "bad.py").write_text(TRITON.replace("times(grad.contiguous(), x)", "grad * 0")
                                    if words else TRITON.replace("* tl.load", "+ tl.load"))
    judged = kopt("evaluate", "--candidate", "bad.py", "--quick", cwd=project)
    assert judged.returncode == 1 and "incorrect" in judged.stdout


def test_file_alone_means_the_forward_of_its_only_module(tmp_path: Path) -> None:
    for text, words in (
            ("import torch\n\nclass Block(torch.nn.Module):\n    def forward(self, x):\n"
             "        return x + 1\n", "block.py:4, Block.forward: no program is given"),
            ("WIDTH = 3\n", "block.py: there is no function to write a task for (name a method: "
                            "kopt new block.py:CLASS.METHOD)"),
            ("def f(x:\n", "block.py:1: not Python: '(' was never closed")):
        (tmp_path / "block.py").write_text(text)
        done = kopt("new", "block.py", "--yes", cwd=tmp_path)
        assert done.returncode == 2 and words in error_text(done)


def test_class_named_as_a_function_names_its_method(tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(
        "class Block:\n    def __init__(self): ...\n    def forward(self, x): return x + 1\n")
    done = kopt("new", "block.py:Block", "--yes", cwd=tmp_path)
    assert done.returncode == 2
    assert error_text(done) == "block.py:1: 'Block' is a class (name a method: Block.forward)"


@pytest.mark.slow
def test_method_is_refused_if_no_object_of_its_class_is_created(tmp_path: Path) -> None:
    project = watched_case.project(tmp_path / "ops")
    (project / "use.py").write_text(
        "import torch\nfrom kernels import Scale\n\nclass Other(Scale):\n"
        "    pass\n\nOther(3)(torch.ones(2, 3))\n")
    done = kopt("new", "kernels.py:Scale.forward", "--yes", "--no-check", "--", sys.executable,
                "use.py", cwd=project)
    assert done.returncode == 2
    assert "no object of this class was seen to be made" in error_text(done)
    assert "kernels.py:" in error_text(done)

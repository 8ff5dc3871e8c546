"""Arguments that hold tensors are taken apart, and a test's own attributes are followed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.discovery.watched import draft_task, drafted_target, entry_source
from engine.discovery.watched.expected import reference_source
from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import WatchedFunction

KERNELS = """\
def submit(data):
    left, _, out = data
    out.copy_(left + data[1])
    return out


def blend(tensors, options, *, scale):
    return (tensors[0] * options["weight"] + tensors[1]).to(tensors[0].dtype) * scale


def scale_rows(x, weight):
    return x * weight
"""
PROGRAM = """\
import torch
from kernels import blend, scale_rows, submit


class Sum(torch.nn.Module):
    scale = 1.0

    def forward(self, left, right):
        return self.scaled(left + right)

    def scaled(self, x):
        return x * self.scale


class Scaled(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(size))

    def forward(self, x, bias):
        return x * self.weight + bias


def expected_of(data):
    left, right, out = data
    out[...] = Sum()(left, right)
    return out


def test_submit(size, shift=lambda value: value if value else 0):
    data = torch.rand(size, 6), torch.rand(size, 6), torch.zeros(size, 6)
    copy = tuple(part.clone() for part in data)
    out = submit(data)
    wanted = expected_of(copy)
    torch.testing.assert_close(out, wanted)


class TestBlend:
    dtype = torch.float32

    def setup_method(self):
        self.device = "cpu"
        self.scale = 3.0

    def scaled(self, x):
        return x * self.scale

    def test_it(self, rows):
        a, b = (torch.randn(rows, 32, dtype=self.dtype, device=self.device) for _ in range(2))
        weight = torch.randn(32)
        y = blend([a, b], {"weight": weight, "axis": None}, scale=self.scale)
        wanted = torch.zeros_like(a)
        for row in range(rows):
            part = a[row] * weight + b[row]
            wanted[row] = self.scaled(part.to(dtype=self.dtype, device=self.device))
        assert torch.allclose(y, wanted)


def test_scaled(rows):
    layer = Sum()
    layer.weight = torch.nn.Parameter(torch.randn(32))
    copy = Scaled(32)
    copy.load_state_dict(layer.state_dict())
    x = torch.randn(rows, 32)
    torch.testing.assert_close(scale_rows(x, layer.weight), copy(x, bias=0.0))


for size in (4, 9):
    test_scaled(size)
    test_submit(size)
    case = TestBlend()
    case.setup_method()
    case.test_it(size)
"""


@pytest.mark.parametrize(("name", "args", "call", "reference"), [
    ("scale_rows", ["x", "weight"], "", [
        "copy = Scaled(32)",
        "return torch.func.functional_call(copy, {'weight': weight}, (x,), {'bias': 0.0})"]),
    ("submit", ["data_0", "data_1", "data_2"], "module.submit((data_0, data_1, data_2, ))",
     ["copy = (data_0, data_1, data_2, )", "wanted = expected_of(copy)", "return wanted"]),
    ("blend", ["tensors_0", "tensors_1", "options_weight", "options_axis", "scale"],
     "module.blend([tensors_0, tensors_1, ], {'weight': options_weight, 'axis': options_axis}, "
     "scale=scale)",
     ["a = tensors_0", "b = tensors_1", "rows = tensors_0.shape[0]",
      "self_device = tensors_0.device",
      "self_dtype = tensors_0.dtype", "self_scale = scale", "weight = options_weight",
      "def self_scaled(x):", "return x * self_scale", "wanted = torch.zeros_like(a)",
      "for row in range(rows):", "part = a[row] * weight + b[row]",
      "wanted[row] = self_scaled(part.to(dtype=self_dtype, device=self_device))",
      "return wanted"])])
def test_parts_of_a_container_are_arguments_of_the_task_and_of_its_reference(
        tmp_path: Path, name: str, args: list[str], call: str, reference: list[str]) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_it.py").write_text(PROGRAM)
    entry = entry_source.find(KERNELS, name, "kernels.py")
    function = WatchedFunction(file=os.path.realpath(tmp_path / "kernels.py"), name=entry.name,
                               lines=entry.lines, parts=entry.parts)
    observed = watched_calls.watch([sys.executable, "test_it.py"], function, tmp_path,
                                   interpret=False)
    [group] = draft_task.groups(draft_task.visible(observed.calls, entry))
    draft = draft_task.draft(group, entry, "kernels.py:1")
    assert [arg.name for arg in draft.args] == args
    found, why = reference_source.find(observed.callers, entry, args, tmp_path)
    assert found is not None, why
    drafted = drafted_target.make(draft, entry, "kernels.py", "python", found=found)
    assert drafted is not None and call in str(drafted.files.get(drafted_target.ADAPTER))
    body = found.source.partition(f"def {name}(")[2].splitlines()[1:]
    assert [line.strip() for line in body] == reference
    if name == "submit":
        assert "return self.scaled(left + right)" in found.source
        assert drafted.target.args[2].role == "inout"  # the reference fills it


def test_parts_have_the_names_that_the_function_gives_them() -> None:
    entry = entry_source.find("def f(data, n):\n    x, weight = data\n    a, a = n", "f", "k.py")
    assert entry.parts == {"data": ("x", "weight")}

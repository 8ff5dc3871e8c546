"""Runs the drafted adapters of methods and of backward passes on the watched kernels."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched import draft_task, drafted_target
from engine.discovery.watched.draft_task import TaskDraft
from engine.discovery.watched.expected import reference_source
from harness.errors import InputError
from harness.tasks.task_file import check
from tests.support.kernels import watched_case

pytestmark = pytest.mark.slow  # the tests import torch themselves
torch: Any = None


@pytest.fixture(autouse=True, scope="module")
def _torch() -> None:
    global torch
    torch = pytest.importorskip("torch")


def draft_of(function: str, *, backward: bool) -> TaskDraft:
    entry, observed, _ = watched_case.observe(function)
    [group] = draft_task.groups(draft_task.visible(observed.calls, entry))
    return draft_task.draft(group, entry, "kernels.py:1", backward=backward)


def target_of(function: str, *, backward: bool) -> DraftedTarget:
    """Return the target with the reference found in the watched program."""
    entry, observed, path = watched_case.observe(function)
    draft = draft_of(function, backward=backward)
    found, why = reference_source.find(observed.callers, entry, [arg.name for arg in draft.args],
                                       path)
    assert found is not None, why
    result = drafted_target.make(draft, entry, "kernels.py", "python", found=found)
    assert result is not None
    check(result.target)
    return result


def load_module(text: str | bytes, path: Path) -> Any:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kernels(tmp_path: Path) -> ModuleType:
    module: ModuleType = load_module(watched_case.KERNELS, tmp_path / "kernels.py")
    return module


def test_each_call_of_a_module_s_forward_gets_its_own_weights(
        kernels: ModuleType, tmp_path: Path) -> None:
    result = target_of("Scale.forward", backward=False)
    args = {arg.name: arg for arg in result.target.args}
    assert args["weight_"].shape == ("cols",) and args["init_dim"].value == "cols"
    call = load_module(result.files[drafted_target.ADAPTER], tmp_path / "adapter.py").call
    x = torch.randn(3, 8)
    values = {"x": x, "weight": 1.0, "init_dim": 8, "init_factor": 5.0, "init_bias": False,
              "training": True}
    for weight in (torch.rand(8), torch.rand(8)):
        values["weight_"] = weight
        assert torch.equal(call(kernels, *(values[name] for name in args)), x * weight * 5)
    with pytest.raises(ValueError, match=r"the weight 'weight' has shape \(9,\)"):
        values["init_dim"] = 9
        call(kernels, *(values[name] for name in args))


def test_expected_result_that_names_the_object_s_weights_is_a_reference(tmp_path: Path) -> None:
    result = target_of("Scale.forward", backward=False)
    reference = load_module(result.files[drafted_target.REFERENCE], tmp_path / "r.py").forward
    assert torch.equal(reference(x=torch.ones(2, 3), weight_=torch.tensor([1., 2., 3.]),
                                 init_factor=2.0)[0], torch.tensor([2., 4., 6.]))


@pytest.mark.parametrize("function", ["norm", "Scale.forward"])
def test_backward_returns_the_gradients_that_autograd_gives(
        function: str, kernels: ModuleType, tmp_path: Path) -> None:
    result = target_of(function, backward=True)
    names = [arg.name for arg in result.target.args]
    assert names[-1] == "grad_output"
    weight = "weight_" if function == "Scale.forward" else "weight"
    values = {"x": torch.randn(4, 8), "weight": 1.0, weight: torch.rand(8),
              "eps": 1e-5, "mode": "rms", "init_dim": 8, "init_factor": 2.0, "init_bias": False,
              "training": True, "grad_output": torch.randn(4, 8)}
    values = {name: values[name] for name in names}
    got = load_module(result.files[drafted_target.ADAPTER], tmp_path / "adapter.py").call(
        kernels, *values.values())
    want = load_module(result.files[drafted_target.REFERENCE], tmp_path / "r.py").with_gradients(
        **values)
    assert len(got) == 3 == len(result.target.return_dtypes)
    assert [value.shape for value in got] == [(4, 8), (4, 8), (8,)]
    for mine, other in zip(got, want, strict=True):
        torch.testing.assert_close(mine, other)
    assert not any(value.requires_grad for value in (*got, *want))


def test_copies_protect_the_inputs_from_a_backward_pass_that_overwrites_them(
        tmp_path: Path) -> None:
    module = load_module(watched_case.KERNELS + """

class Overwriting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps, mode):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = (each.data for each in ctx.saved_tensors)
        summed = (x * grad).sum(0)
        return grad.mul_(weight), x[0].copy_(summed), None, None


def norm(x, weight, eps, *, mode):
    return Overwriting.apply(x, weight, eps, mode)
""", tmp_path / "kernels.py")
    result = target_of("norm", backward=True)
    assert drafted_target.with_copies(target_of("norm", backward=False)) is None
    copied = drafted_target.with_copies(result)
    assert copied is not None
    for drafted, is_changed in ((result, True), (copied, False)):
        values = {"x": torch.ones(4, 8), "weight": torch.full((8,), 3.0), "eps": 1e-5,
                  "mode": "rms", "grad_output": torch.ones(4, 8)}
        text = drafted.files[drafted_target.ADAPTER]
        _, grad, _ = load_module(text, tmp_path / "adapter.py").call(
            module, *(values[arg.name] for arg in drafted.target.args))
        assert torch.equal(grad, torch.full((4, 8), 3.0))
        assert torch.equal(values["x"], torch.ones(4, 8)) is not is_changed
        assert torch.equal(values["grad_output"], torch.ones(4, 8)) is not is_changed


def test_backward_without_a_tensor_that_requires_a_gradient_says_what_to_call() -> None:
    with pytest.raises(InputError, match=r"no argument required a gradient.*requires_grad_\(\)"):
        draft_of("gather", backward=True)

"""A task's adapter calls the loaded source; a module gets the weights and inputs of each call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import BadField, check
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.programs import shared_zygotes

MODEL = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""
OLDER = MODEL.replace("import torch\n", "import torch  # as it was\n", 1)
FUNCTIONAL = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.linear.weight.t()).clamp_(min=0)
"""
KEEPS_WEIGHTS = FUNCTIONAL.replace("self.linear.weight.t()", "self.kept()") + """
    def kept(self):
        if not hasattr(self, "first"):
            self.first = self.linear.weight.t().clone()
        return self.first
"""
ADAPTER = """import torch

models = {}

def call(module, x, weight, bias):
    model = models.setdefault(module, module.Model())
    return torch.func.functional_call(model, {"linear.weight": weight, "linear.bias": bias}, (x,),
                                      strict=True)
"""
RIGHT_WITHOUT_MODULE = """def call(module, x, weight, bias):
    return (x @ weight.T + bias).clamp(min=0)
"""
REFERENCE = """def model(**given):
    return (given["x"] @ given["l.weight"].T + given["bias"]).clamp(min=0)
"""
TARGET = Target(
    op="layer", language="python", source="model.py", entry="Model",
    reference="kopt_task/reference.py:model", adapter="kopt_task/adapter.py:call", returns=True,
    args=(Arg(name="x", dtype="float32", shape=("rows", 24)),
          Arg(name="l.weight", dtype="float32", shape=(16, 24)),
          Arg(name="bias", dtype="float32", shape=(16,))),
    classes=(ConfigClass(name="small", shape={"rows": 64}),))


def tree(folder: Path, source: str, adapter: str = ADAPTER) -> str:
    (folder / "kopt_task").mkdir(parents=True)
    (folder / "model.py").write_text(source)
    (folder / "kopt_task/adapter.py").write_text(adapter)
    (folder / "kopt_task/reference.py").write_text(REFERENCE)
    return str(folder)


def judge(folder: Path, source: str, *, adapter: str = ADAPTER) -> Verdict:
    base = tree(folder / "base", OLDER)
    return evaluate(
        TARGET, Trees(candidate=tree(folder / "candidate", source, adapter), incumbent=base,
                      reference=base), inventory.find("cpu"),
        Settings(scratch=str(folder / "scratch"), plan=Plan(looks=(2,)), static_audit=False),
        zygote=shared_zygotes.zygote("python"))


def test_module_with_weights_gets_a_measured_verdict(tmp_path: Path) -> None:
    verdict = judge(tmp_path, FUNCTIONAL)
    assert verdict.valid and verdict.correct
    assert verdict.latency_us is not None and verdict.latency_kind == "measured-cpu"


def test_module_that_keeps_the_weights_of_an_earlier_call_is_wrong(tmp_path: Path) -> None:
    assert not judge(tmp_path, KEEPS_WEIGHTS).correct


def test_adapter_in_the_candidates_tree_is_not_used(tmp_path: Path) -> None:
    wrong = judge(tmp_path, FUNCTIONAL.replace("min=0", "min=1"), adapter=RIGHT_WITHOUT_MODULE)
    assert wrong.valid and not wrong.correct


@pytest.mark.parametrize(("adapter", "message"), [
    ("kopt_task/adapter.py", "is not FILE:FUNCTION"), ("../adapter.py:call", "inside the project"),
    ("model.py:call", "no candidate may edit the adapter")])
def test_bad_adapter_is_refused_with_the_reason(adapter: str, message: str) -> None:
    with pytest.raises(BadField, match=message):
        check(replace(TARGET, adapter=adapter))

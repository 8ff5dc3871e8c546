"""Candidates for a PyTorch module are judged by the task that kopt drafts from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.discovery.module import draft_module
from harness.case import DISTRIBUTIONS
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks.task_file import load
from harness.timing.plan import Plan
from harness.verdict import HELD_OUT, Verdict
from tests.support.kernels.module_problems import LOSS, MIXED, NORM
from tests.support.programs import shared_zygotes


def judge(folder: Path, text: str, candidate: str,
          distributions: tuple[str, ...] = ("normal",)) -> Verdict:
    """Draft the task of a problem file and evaluate a candidate file against that problem."""
    trees = {}
    for side, source in (("base", text), ("candidate", candidate)):
        (folder / side).mkdir()
        (folder / side / "problem.py").write_text(source)
        trees[side] = folder / side
    drafted = draft_module.draft(trees["base"], "problem.py", "kopt_task", folder, sizes={},
                                 small=True, zygote=shared_zygotes.module_reader())
    drafted.write(trees["base"])
    assert load(trees["base"] / "kopt_task/task.yaml") == drafted.target
    base = str(trees["base"])
    return evaluate(drafted.target, Trees(candidate=str(trees["candidate"]), incumbent=base,
                                          reference=base), inventory.find("cpu"),
                    Settings(scratch=str(folder / "scratch"), plan=Plan(looks=(2,)),
                             distributions=distributions),
                    zygote=shared_zygotes.zygote("python"))


def as_model_new(text: str) -> str:
    return text.replace("class Model(", "class ModelNew(")


@pytest.mark.slow
def test_candidate_may_define_model_new(tmp_path: Path) -> None:
    verdict = judge(tmp_path, NORM, as_model_new(NORM).replace("self.bn(x) ** power",
                                                               "self.bn(x).square()"))
    assert verdict.valid and verdict.correct, verdict


def test_flags_and_several_outputs_are_judged(tmp_path: Path) -> None:
    verdict = judge(tmp_path, MIXED, as_model_new(MIXED).replace("argmax(1)", "argmin(1)"))
    assert verdict.valid and not verdict.correct


def test_candidate_that_returns_a_value_under_another_name_is_wrong(tmp_path: Path) -> None:
    verdict = judge(tmp_path, MIXED, as_model_new(MIXED).replace('"few":', '"fewer":'))
    assert "the baseline returns a dict with best, few, none, sum" in str(verdict)
    assert not verdict.correct


@pytest.mark.slow
def test_candidate_that_no_longer_writes_a_buffer_is_wrong(tmp_path: Path) -> None:
    forgets = as_model_new(NORM).replace("self.bn(x)", "nn.functional.batch_norm(x, None, None, "
                                         "self.bn.weight, self.bn.bias, True)")
    verdict = judge(tmp_path, NORM, forgets)
    assert not verdict.correct and "error" in verdict.rows[0].note, verdict


def test_error_names_the_weight_that_the_candidate_lacks(tmp_path: Path) -> None:
    verdict = judge(tmp_path, NORM, as_model_new(NORM).replace("self.bn", "self.norm"))
    assert "ModelNew has no weight 'bn.weight', which the baseline's class has" in str(verdict)


@pytest.mark.slow
def test_loss_over_probabilities_and_labels_is_judged_with_all_distributions(
        tmp_path: Path) -> None:
    verdict = judge(tmp_path, LOSS, as_model_new(LOSS), distributions=DISTRIBUTIONS)
    assert verdict.correct and not [note for note in verdict.notes if "finite" in note
                                    or "no " in note], verdict.notes
    [held_out] = [item.detail for item in verdict.evidence if item.kind == HELD_OUT]
    assert "classes=" in held_out, held_out

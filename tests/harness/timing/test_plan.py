"""A quick verdict measures less and a thorough one more, at the same error rate."""

from __future__ import annotations

import pytest

from harness.benchmark.runs import stopping_rule
from harness.timing.plan import GPU_LOOKS, Plan


def test_a_quick_plan_has_two_looks_with_few_pairs_and_blocks() -> None:
    normal, quick = Plan(), Plan().with_effort("quick")
    assert len(quick.looks) == 2 and quick.looks[-1] < normal.looks[1] and quick.looks[0] > 1
    assert quick.blocks < normal.blocks
    assert (quick.alpha, quick.margin, quick.tolerance) == (0.001, 0.01, 0.01)
    assert "nothing is kept on a quick verdict" in quick.describe_effort()


def test_a_thorough_plan_has_more_pairs_and_counts_smaller_gains() -> None:
    normal, thorough = Plan(), Plan().with_effort("thorough")
    assert thorough.looks[-1] == 2 * normal.looks[-1] and thorough.margin == 0.005
    assert thorough.alpha == normal.alpha
    assert "36 process pairs, and gains of at least 0.50% count" in thorough.describe_effort()


def test_a_smaller_margin_of_the_manifest_is_kept() -> None:
    assert Plan(margin=0.002).with_effort("thorough").margin == 0.002


def test_a_normal_plan_is_unchanged() -> None:
    assert Plan().with_effort("normal") == Plan() and Plan().describe_effort() == ""


def test_looks_of_whole_runs_depend_on_the_effort_too() -> None:
    looks = {effort: stopping_rule.plan_for(Plan().with_effort(effort)).looks
             for effort in ("quick", "normal", "thorough")}
    assert looks["quick"] == looks["normal"][:2] and looks["thorough"][-1] == 18
    assert stopping_rule.plan_for(Plan().with_effort("thorough"), 6).looks == (3, 4, 6)


@pytest.mark.parametrize(("looks", "of_gpu"), [
    ((4, 6, 9, 13, 18), (3, 5, 8, 12, 18)), ((4, 6), (3, 5)), ((1,), (1,)), ((3, 5), (3, 5)),
    ((6, 9, 13), (6, 9, 13))])
def test_gpu_has_earlier_looks_at_the_same_error_rate(
        looks: tuple[int, ...], of_gpu: tuple[int, ...]) -> None:
    plan = Plan(looks=looks)
    assert plan.with_looks(GPU_LOOKS).looks == of_gpu
    assert plan.with_looks(GPU_LOOKS).alpha_look == plan.alpha_look

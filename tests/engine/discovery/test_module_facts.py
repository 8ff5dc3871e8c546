"""Tests what kopt learns from a file with a PyTorch module, without asking its owner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.discovery.module import draft_module, problem_facts
from engine.discovery.module.problem_facts import ModuleFacts
from harness.errors import InputError
from tests.support.kernels.module_problems import (
    CHOOSING,
    DROPOUT,
    HALVES,
    HEAD,
    LOSS,
    MIXED,
    NORM,
    NUMBERS,
)
from tests.support.programs import shared_zygotes


def learn(folder: Path, text: str, *, small: bool = False,
          sizes: Mapping[str, int] | None = None) -> ModuleFacts:
    (folder / "problem.py").write_text(text)
    return problem_facts.learn(folder / "problem.py", folder, sizes=sizes or {}, small=small,
                               training=None, zygote=shared_zygotes.module_reader())


def test_shapes_are_named_by_the_sizes_that_they_follow(tmp_path: Path) -> None:
    facts = learn(tmp_path, NORM)
    assert facts.args[0].name == "x" and facts.args[0].shape == ("batch_size", 16384)
    assert facts.sizes == {"batch_size": 8192}
    assert facts.init == "[16384, 0.5]" and facts.call == ("x", "2")
    together = NORM.replace("batch_size = 4096 * 2\nfeatures = 16384",
                            "batch_size, features = 8192, 16384")
    annotated = NORM.replace("batch_size =", "batch_size: int =")
    assert NORM not in (together, annotated)
    assert [learn(tmp_path, text).args[0].shape for text in (together, annotated)] == [
        ("batch_size", 16384)] * 2


def test_weights_become_arguments_and_written_buffers_also_results(
        tmp_path: Path) -> None:
    facts = learn(tmp_path, NORM)
    assert facts.weights == ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
    assert [arg.name for arg in facts.args if arg.written] == ["bn.running_mean", "bn.running_var"]
    assert "written by a call" in facts.notes[0] and "bn.num_batches_tracked" in facts.notes[1]
    weight = facts.args[1]
    assert (weight.low, weight.high) == (0.5, 1.5)


def test_small_sizes_suit_a_cpu_and_a_given_size_stays(tmp_path: Path) -> None:
    facts = learn(tmp_path, NORM, small=True, sizes={"features": 240})
    assert facts.changed["features"] == (16384, 240)
    assert facts.sizes["batch_size"] < 8192 and facts.bytes <= 2 << 20


def test_small_sizes_leave_no_result_empty(tmp_path: Path) -> None:
    text = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        return x.relu(), x[:, 300:] * 2  # like a convolution whose filter has 300 elements

batch_size = 4096
length = 65536

def get_inputs():
    return [torch.rand(batch_size, length)]

def get_init_inputs():
    return []
"""
    facts = learn(tmp_path, text, small=True)
    assert facts.sizes["length"] > 300 and all(0 not in out.shape for out in facts.outputs)


def test_literal_numbers_become_sizes_if_a_call_is_too_large(tmp_path: Path) -> None:
    facts = learn(tmp_path, NUMBERS)
    assert facts.args[0].shape == (4, 16, 2048, 128) and not facts.changed
    small = learn(tmp_path, NUMBERS, small=True, sizes={"size_16": 8})
    assert set(small.changed) == {"size_16", "size_2048", "size_128"}
    heads, tokens, width = (small.changed[f"size_{n}"][1] for n in (16, 2048, 128))
    assert small.args[0].shape == (4, heads, tokens, width) and heads == 8
    assert small.init == f"[{width}]" and small.args[3].shape == (width, width)


def test_sizes_that_depend_on_each_other_shrink_together(tmp_path: Path) -> None:
    small = learn(tmp_path, HALVES, small=True)
    rows, width = (small.changed[f"size_{n}"][1] for n in (8192, 4096))
    assert small.args[0].shape == (rows, rows) and rows == 2 * width and small.bytes <= 8 << 20


def test_layers_that_a_constructor_puts_in_eval_mode_stay_in_it(tmp_path: Path) -> None:
    facts = learn(tmp_path, HALVES, sizes={"size_8192": 64, "size_4096": 32})
    assert facts.training and not any(arg.written for arg in facts.args)


def test_roundings_of_a_short_float_are_no_other_values_than_those_of_float64(
        tmp_path: Path) -> None:
    facts = learn(tmp_path, HALVES, sizes={"size_8192": 256, "size_4096": 128})
    assert not any("float64" in note for note in facts.notes)


def test_nested_inputs_flags_and_several_outputs_become_tensors(tmp_path: Path) -> None:
    facts = learn(tmp_path, MIXED)
    assert facts.call == ("(pair_0, pair_1)", "as_bool(mask)", "labels", "None")
    assert [(arg.name, arg.dtype, arg.low, arg.high) for arg in facts.args] == [
        ("pair_0", "float32", None, None), ("pair_1", "float32", None, None),
        ("mask", "uint8", 0, 2), ("labels", "int64", 0, 10)]
    assert [output.dtype for output in facts.outputs] == ["int64", "uint8", "float32"]


def test_bounds_and_structure_of_example_values_are_learned_with_the_size_they_follow(
        tmp_path: Path) -> None:
    facts = learn(tmp_path, LOSS, small=True)
    labels, found, logs, shares, signs, scores = facts.args
    assert (labels.low, labels.high) == (0, "classes") and "follow classes" in labels.why
    assert (found.low, found.high) == (0, "classes"), "argmax, of which only values are seen"
    assert facts.sizes["classes"] == facts.all_sizes["classes"][1] != 4096
    assert (logs.structure, logs.low, logs.high) == ("log_probabilities", None, None)
    assert (shares.structure, shares.low) == ("probabilities", None)
    assert (signs.structure, signs.low, signs.high) == ("two_valued", -1, 1)
    assert (scores.structure, scores.high) == (None, 1.0) and scores.low is not None
    assert 0 < scores.low < 0.01 and "not finite at 0" in scores.why


def test_bound_above_a_size_is_written_as_a_sum(tmp_path: Path) -> None:
    text = LOSS.replace("torch.randint(0, classes,", "torch.randint(1, classes + 1,").replace(
        "logs.gather(1, labels[:, None])", "logs.gather(1, labels[:, None] - 1)")
    (tmp_path / "problem.py").write_text(text)
    drafted = draft_module.draft(tmp_path, "problem.py", "kopt_task", tmp_path, sizes={},
                                 small=True, zygote=shared_zygotes.module_reader())
    assert drafted.target.args[0].high == "classes + 1"
    assert "1 to classes (the bounds of torch.randint, which follow classes" in drafted.reasons[0]


@pytest.mark.parametrize(("sizes", "notes"), [
    ({}, []), ({"rows": 8}, []),
    ({"rows": 1 << 20}, ["no smaller sizes work: all other sizes stay as they are"])])
def test_note_that_no_smaller_sizes_work_is_about_large_calls_only(
        sizes: Mapping[str, int], notes: list[str], tmp_path: Path) -> None:
    text = CHOOSING.replace("torch.rand(6, 8)", "torch.rand(rows, 8)").replace(
        "def get_inputs", "rows = 6\n\ndef get_inputs")
    facts = learn(tmp_path, text, small=True, sizes=sizes)
    assert [note for note in facts.notes if "sizes" in note] == notes


def test_mask_of_infinite_values_has_finite_bounds() -> None:
    import torch

    from harness.child.module.input_ranges import value_range

    known = value_range(torch.full((8, 8), -torch.inf).triu(1))
    assert (known["low"], known["high"]) == (torch.finfo(torch.float32).min, 0)
    assert known["structure"] == "two_valued"


def test_module_that_draws_random_numbers_in_training_is_judged_in_eval_mode(
        tmp_path: Path) -> None:
    facts = learn(tmp_path, DROPOUT)
    assert not facts.training and "eval mode" in facts.notes[0]


def test_experts_that_few_tokens_choose_do_not_count_in_the_roofline(tmp_path: Path) -> None:
    facts = learn(tmp_path, CHOOSING)
    assert facts.flops is None and facts.bytes == 2 * 6 * 8 * 4
    assert any("selects by values" in note for note in facts.notes)


@pytest.mark.parametrize(("text", "message"), [
    (NORM.replace("[features, 0.5]", "[features, torch.ones(1)]"), "gives a Tensor"),
    (DROPOUT.replace("self.training", "True"), "two calls with the same inputs"),
    (NORM.replace("* self.bn", "* self.norm"), "no attribute 'norm'"),
    (CHOOSING.replace("return y", "return x[x > 0.5]"), "depend on its inputs' values"),
    (CHOOSING.replace("return y", "return y if x.sum() > 0 else x"), "by the value of a tensor")],
    ids=["init inputs", "random", "broken", "shapes", "values"])
def test_error_says_why_a_module_cannot_be_a_task(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        learn(tmp_path, text)

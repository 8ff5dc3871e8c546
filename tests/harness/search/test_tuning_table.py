"""A tuning table, JSON with triton.Configs or vLLM's configurations, becomes knobs."""

from __future__ import annotations

import json

import pytest

from harness.errors import InputError
from harness.search.space import knob_proposals, knobs, tuning_table
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy import AskTell, Sweep

LAUNCH = """import triton

@triton.jit
def add_kernel(x, BLOCK_M: triton.language.constexpr):
    pass

def add(x):
    add_kernel[(1,)](x, BLOCK_M=32, num_warps=4)
"""
DECLARED = "TILE_M = 8  # kopt: knob TILE_M in [8, 16]\nWIDE = 1  # kopt: knob WIDE in [1, 2]\n"
AUTOTUNED = """import triton

@triton.autotune(configs=[triton.Config({'BLOCK_M': 32}, num_warps=4)], key=['n'])
@triton.jit
def kernel(x, BLOCK_M: triton.language.constexpr):
    pass
"""
VLLM = {"triton_version": "3.4.0", "1": {"BLOCK_M": 16, "num_warps": 2},
        "64": {"BLOCK_M": 64, "num_warps": 8}, "512": {"BLOCK_M": 128, "num_warps": 8}}


def table(value: object) -> tuple[tuning_table.TableEntry, ...]:
    return tuning_table.parse(json.dumps(value), "t.json")


@pytest.mark.parametrize("value", [
    [{"BLOCK_M": 64, "num_warps": 4}], {"BLOCK_M": 64, "num_warps": 4},
    [{"kwargs": {"BLOCK_M": 64}, "num_warps": 4}]])
def test_every_form_of_a_config_is_read_alike(value: object) -> None:
    [entry] = table(value)
    assert entry.config == {"BLOCK_M": 64, "num_warps": 4}


@pytest.mark.parametrize(("text", "words"), [
    ("[", "not JSON"), ("[]", "no configuration is in the table"),
    ("[3]", "is not a configuration"),
    ('[{"a": [1]}]', "a has the value [1]"), ('"x"', "no configuration is in the table")])
def test_refused_table_is_reported_with_its_fault_and_file(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        tuning_table.parse(text, "t.json")
    assert words in str(caught.value) and "t.json" in str(caught.value)


def test_entries_of_the_batch_sizes_nearest_to_the_classes_come_first() -> None:
    ordered = tuning_table.in_order(table(VLLM), [{"M": 500}, {"M": 3}])
    assert [entry.label for entry in ordered] == ["512", "1", "64"]


def test_values_of_a_table_become_knobs_at_the_arguments_of_a_launch() -> None:
    text, unused = tuning_table.declare(LAUNCH, table(VLLM), "triton")
    assert {knob.name: (knob.value, knob.choices) for knob in knobs.find(
        text, language="triton")} == {"ADD_KERNEL_BLOCK_M": (32, (16, 32, 64, 128)),
                                      "ADD_KERNEL_NUM_WARPS": (4, (2, 4, 8))}
    assert unused == []
    assert knob_proposals.inlined(text).split() == LAUNCH.split()


def test_declared_knob_gets_its_value_and_the_tables_values_as_choices() -> None:
    text, unused = tuning_table.declare(DECLARED, table(
        [{"TILE_M": 32, "waves_per_eu": 2}]), "python")
    assert [knob.choices for knob in knobs.find(text, language="python")] == [(8, 32), (1, 2)]
    assert unused == ["waves_per_eu"]


def test_search_tries_the_default_then_the_entries_of_the_table() -> None:
    text, _ = tuning_table.declare(LAUNCH, tuning_table.in_order(table(VLLM), [{"M": 64}]),
                                   "triton")
    source = TunableSource.parse(text, language="triton")
    walk = AskTell(Sweep(()), source.space(), source.starts())
    tried = [tuple(walk.next().values()) for _ in range(4)]  # type: ignore[union-attr]
    assert tried == [(32, 4), (64, 8), (16, 2), (128, 8)]
    assert walk.next() is None


def test_autotune_list_gets_the_configs_of_the_table() -> None:
    text, unused = tuning_table.declare(AUTOTUNED, table(VLLM), "triton")
    [knob] = knobs.find(text, language="triton")
    assert [tuning_table.of_text(str(choice)) for choice in knob.choices] == [
        {"BLOCK_M": 32, "num_warps": 4}, {"BLOCK_M": 16, "num_warps": 2},
        {"BLOCK_M": 64, "num_warps": 8}, {"BLOCK_M": 128, "num_warps": 8}]
    assert unused == []

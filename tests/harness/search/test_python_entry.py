"""Only what a kernel's entry reaches gets knobs and transformations."""

from __future__ import annotations

from engine.transformations import transformation_registry
from harness.search.space import knob_proposals, python_entry

KERNEL = '''
@triton.jit
def {0}_kernel(x, n, BLOCK: tl.constexpr):
    """Doubles.

    In place.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def {0}(x):
    {0}_kernel[(triton.cdiv(x.numel(), SIZE),)](x, x.numel(), BLOCK=64, num_warps=4)
'''
SOURCE = "import triton\nimport triton.language as tl\n\nSIZE = 64\n" + "".join(
    KERNEL.format(name) for name in ("first", "second")) + '''

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return second(x)


scale = Scale.apply
'''


def test_knobs_are_of_the_launches_that_the_entry_reaches() -> None:
    def launched(entry: str) -> set[str]:
        return {each.why.split()[-1] for each in knob_proposals.propose(
            SOURCE, "triton", entry=entry)}

    assert launched("first") == {"first_kernel"}
    assert launched("scale") == launched("Scale.apply") == {"second_kernel"}
    assert launched("") == launched("elsewhere") == {"first_kernel", "second_kernel"}


def test_hidden_lines_return_as_they_were() -> None:
    shown = python_entry.shown(SOURCE, "first")
    assert "\ndef first(x)" in shown and "\ndef second(x)" not in shown
    assert shown.count("\n") == SOURCE.count("\n")
    assert python_entry.restored(shown) == SOURCE


def test_transformations_change_only_what_the_entry_reaches() -> None:
    knobs = {entry: next(change.what for change in transformation_registry.applicable(
        SOURCE, "triton", entry) if change.name == "triton-launch-knobs")
        for entry in ("first", "scale", "")}
    assert "first_kernel" in knobs["first"] and "second_kernel" not in knobs["first"]
    assert "second_kernel" in knobs["scale"] and "first_kernel" not in knobs["scale"]
    assert "first_kernel" in knobs[""] and "second_kernel" in knobs[""]

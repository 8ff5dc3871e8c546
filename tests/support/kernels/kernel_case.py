"""Small kernels judged by the real harness in real processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.case import Errors
from harness.compile import kernel
from harness.compile.place import place_on
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import from_json, to_json
from harness.runners.oracle_client import Oracle
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from harness.runners.slots.case_memory import CaseMemory
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import check
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.programs import shared_zygotes

HEAD = """import torch
import triton
import triton.language as tl
"""
DOUBLE = HEAD + """
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr = 64):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def double(x, out):
    n = x.numel()
    double_kernel[(triton.cdiv(n, 64),)](x, out, n)
"""
REFERENCE = "def double(x):\n    return 2 * x\n"
QUICK = Plan(looks=(2, 3), blocks=4, block_ns=1_000_000, warm_ns=500_000)


def target(**fields: Any) -> Target:
    """Return a target that doubles a vector of `n` numbers."""
    dtype = fields.pop("dtype", "float32")
    given: dict[str, Any] = {
        "op": "double", "language": "triton", "source": "kernel.py", "entry": "double",
        "reference": "reference.py:double", "flops": "n",
        "args": (Arg(name="x", dtype=dtype, shape=("n",)),
                 Arg(name="out", dtype=dtype, shape=("n",), role="output")),
        "classes": (ConfigClass(name="odd", shape={"n": 331}),)}
    made = Target(**(given | fields))
    check(made)
    return made


def tree(folder: Path, source: str, reference: str = REFERENCE) -> str:
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(source)
    (folder / "reference.py").write_text(reference)
    return str(folder)


class Bench:
    """One oracle, with one case of a target, that checks many sources.

    It is the checking half of an evaluation, without a new oracle for every source.
    """

    def __init__(self, folder: Path, of: Target) -> None:
        self.folder, self.target = folder, of
        place = place_on(inventory.find("cpu"), of.language, env={}, python=None,
                         scratch=str(folder))
        self.place = replace(place, zygote=shared_zygotes.for_place(place, of.language))
        self.oracle = Oracle(of, Path(tree(folder / "reference", "")), folder / "io", self.place)
        self.case = self.oracle.make(of.classes[0], "normal")
        self._count = 0

    def run(self, source: str) -> Errors:
        """Build, load and call a source once. Raises the errors that an evaluation handles."""
        self._count += 1
        made = kernel.make(self.target, Path(tree(self.folder / str(self._count), source)),
                           "candidate", self.place)
        with RunnerPool(PYTHON_LIMITS) as runners, runners.start(made) as runner:
            return CaseMemory(self.oracle, runner, self.case).call(self.case)


def judge(folder: Path, source: str, incumbent: str = DOUBLE, *, of: Target | None = None,
          device: str = "cpu", plan: Plan | None = None, **settings: Any) -> Verdict:
    """Evaluate a source against an incumbent's."""
    given: dict[str, Any] = {"scratch": str(folder / "scratch"), "distributions": ("normal",),
                             "plan": plan or QUICK, "static_audit": False}
    trees = Trees(candidate=tree(folder / "candidate", source),
                  incumbent=tree(folder / "incumbent", incumbent),
                  reference=str(folder / "incumbent"))
    of = of or target()
    verdict = evaluate(of, trees, inventory.find(device), Settings(**(given | settings)),
                       zygote=shared_zygotes.zygote(of.language, device))
    assert from_json(to_json(verdict), Verdict) == verdict
    return verdict

"""Small C kernels judged by the real harness: an incumbent, and good and hostile candidates."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from harness.compile.kernel import Kernel
from harness.devices import inventory
from harness.evaluate.evaluate import Evaluation, evaluate
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import check
from harness.timing.plan import Plan
from harness.verdict import Verdict

HEAD = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void twice(const float *x, float *out, int64_t n) {
"""
SLOW = HEAD + """    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        for (int k = 0; k < 4; k++) v = v / 3.0f * 3.0f;
        out[i] = 2 * v;
    }
}
"""
RIGHT = "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];\n"
FAST = HEAD + RIGHT + "}\n"
REFERENCE = "def twice(x):\n    return 2 * x\n"
QUICK = Plan(looks=(3, 5), alpha=0.05, blocks=4, block_ns=1_000_000, warm_ns=500_000)


def kernel(body: str, before: str = "") -> str:
    """Return a source whose kernel has this body, after some declarations."""
    return HEAD.replace("void twice", before + "\nvoid twice") + body + "}\n"


def target(**fields: Any) -> Target:
    """Return a target that doubles a vector of `n` numbers."""
    defaults: dict[str, Any] = {
        "op": "twice", "language": "c", "source": "twice.c", "entry": "twice",
        "reference": "reference.py:twice", "build": ("-O2",),
        "args": (Arg(name="x", dtype="float32", shape=("n",)),
                 Arg(name="out", dtype="float32", shape=("n",), role="output"),
                 Arg(name="n", dtype="int64", value="n")),
        "classes": (ConfigClass(name="even", shape={"n": 8192}),
                    ConfigClass(name="odd", shape={"n": 1021}, weight=2.0))}
    made = Target(**(defaults | fields))
    check(made)
    return made


def tree(folder: Path, source: str, reference: str = REFERENCE) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "twice.c").write_text(source)
    (folder / "reference.py").write_text(reference)
    return str(folder)


def judge(folder: Path, source: str, *, incumbent: str = SLOW, reference: str = REFERENCE,
          task: Target | None = None, **settings: Any) -> Verdict:
    """Evaluate a candidate's source against the incumbent's."""
    base = tree(folder / "incumbent", incumbent, reference)
    return evaluate(
        task or target(),
        Trees(candidate=tree(folder / "candidate", source), incumbent=base, reference=base),
        inventory.find("cpu"), settled(folder, **settings))


def settled(folder: Path, **settings: Any) -> Settings:
    """Return settings for a quick verdict."""
    defaults: dict[str, Any] = {"scratch": str(folder / "scratch"), "plan": QUICK, "wall_s": 10.0,
                                "static_audit": False}
    return Settings(**(defaults | settings))


class Bench:
    """An incumbent and an oracle that the verdicts on several candidates share.

    The verdicts are those of `judge`, without a new oracle for each.
    """

    def __init__(self, folder: Path, task: Target) -> None:
        self.folder, self.wanted = folder, task
        self.base = tree(folder / "incumbent", SLOW)
        with Session(task, inventory.find("cpu"), settled(folder), None) as session:
            self.incumbent = session.make(Path(self.base), "incumbent")
            self.oracle = session.oracle(Path(self.base), None)
        self._count = 0

    def judge(self, source: str, **settings: Any) -> Verdict:
        self._count += 1
        return _OnBench(self, tree(self.folder / str(self._count), source),
                        settled(self.folder, **settings)).run()


class _OnBench(Evaluation):
    """An evaluation that uses the bench's incumbent and oracle."""

    def __init__(self, bench: Bench, candidate: str, settings: Settings) -> None:
        super().__init__(bench.wanted, Trees(
            candidate=candidate, incumbent=bench.base, reference=bench.base),
            inventory.find("cpu"), settings, None, None)
        self._bench = bench
        self.session.oracle = self._oracle  # type: ignore[method-assign]

    def _oracle(self, *_: object) -> AbstractContextManager[Oracle]:
        return nullcontext(self._bench.oracle)

    def _build(self, side: str) -> Kernel:
        return self._bench.incumbent if side == "incumbent" else super()._build(side)

"""Check a kernel, untimed, on what the task neither lists nor rules out: it may be over-fit.

These are shapes beside those of the config classes, and on the smallest class unusual values, other
scalars, and other contents beside the arrays (for C also memory that ends where an array does). A
failure counts only if the baseline is right on the same case; on anything but shapes, only if it is
gross.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.compile.kernel import Kernel
from harness.correctness.held_out_shapes import held_out_shapes, nbytes_of
from harness.correctness.tolerance import ROUNDOFF, Tolerance, margin
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle, OracleError
from harness.runners.slots.case_memory import FENCES, CaseMemory
from harness.tasks.target import DTYPE_TOLERANCE, ConfigClass, Target
from harness.verdict import HELD_OUT, Evidence, Finding

GROSS = 10.0
"""On unusual cases an error counts only above this multiple of the allowed one."""
VALUES = {"small": "values of about a thousandth", "large": "values of several hundred",
          "far": "values near 1000",
          "extreme": "values near a million or infinite", "nan": "values that are not a number"}
FEW, SUMMED, SUM_DRAWS = 4, 4096, 2
"""Mean number of places that differ for an element of an output, if it may sum at least so many
elements, and the number of draws.
"""
DECLARE = "declare low and high in the task if such values cannot occur"


@dataclass(frozen=True, kw_only=True)
class UnusualCase:
    """A way to change a case: its distribution, and other fields of some arguments.

    The message of a failure says on `what` the kernel fails, and ends with the `hint`.
    """

    distribution: str
    what: str
    hint: str = DECLARE
    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    may_crash: bool = False
    """Whether honest kernels may crash on it, the baseline among them."""


@dataclass(kw_only=True)
class UntimedChecks:
    """The checks of one candidate, in its `runner`; a crash ends them."""

    target: Target
    oracle: Oracle
    tolerance: Tolerance
    runner: Peer
    candidate: Kernel
    held: DeviceLock | None
    on_gpu: bool
    findings: list[Finding] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    """The shapes on which the candidate is right."""
    has_crashed: bool = False
    outputs: int = 0
    """Elements of the largest output of the last case."""

    def run(self) -> Evidence:
        """Make all checks; what is wrong is in `findings`: a flag for shapes, else a rejection."""
        smallest = min(self.target.classes, key=lambda entry: nbytes_of(self.target, entry))
        unusual = list(unusual_cases(self.target, smallest, on_gpu=self.on_gpu))
        self._check_unusual(smallest, [each for each in unusual if not each.may_crash])
        self._check_unusual(smallest, list(sampled_cases(self.target, smallest, self.outputs)))
        self._check_shapes()
        self._check_unusual(smallest, [each for each in unusual if each.may_crash])
        return Evidence(kind=HELD_OUT, detail=(
            f"correct on {len(self.right)} shapes that the task does not list: "
            f"{'; '.join(self.right)}" if self.right else
            "no shapes other than the task's could be checked"))

    def _check_unusual(self, config_class: ConfigClass, cases: Sequence[UnusualCase]) -> None:
        for case in cases:
            if self.has_crashed or not (problem := self._problem(config_class, case)):
                continue
            where = f"{case.what} ({_shape(config_class)})"
            rule, detail = HELD_OUT, (
                f"{problem} on {where}, where the baseline is correct: {case.hint}")
            if not self.has_crashed and self._problem(config_class):
                rule, detail = "unstable", (
                    f"class {config_class.name}: the answer on normal inputs is wrong after other "
                    "calls; before them it was correct")
            self.findings.append(Finding(rule=rule, severity="reject", detail=detail))
            return

    def _check_shapes(self) -> None:
        if any(finding.severity == "reject" for finding in self.findings):
            return
        for other in held_out_shapes(self.target, random.SystemRandom()):
            if self.has_crashed or (problem := self._problem(other)) is None:
                continue
            if not problem:
                self.right.append(_shape(other))
            else:
                self.findings.append(Finding(rule=HELD_OUT, severity="flag", detail=(
                    f"{problem} on {_shape(other)}, a shape that the task does not list; the "
                    "baseline is correct on it")))
                return

    def _problem(self, config_class: ConfigClass, unusual: UnusualCase | None = None,
                 ) -> str | None:
        """Return how the candidate fails where the baseline does not, "" if it is right.

        None if there is no standard: the reference has no answer, or the baseline fails as well.
        """
        try:
            case = self.oracle.make(config_class, unusual.distribution, changed=unusual.changed) \
                if unusual else self.oracle.make(config_class, "normal")
        except OracleError:
            return None  # the reference does not support this shape
        if case.skip:
            return None
        self.outputs = self.oracle.largest_output(case)
        try:
            memory = CaseMemory(self.oracle, self.runner, case)
            judged = self.tolerance.judge(case, memory.call(case), self.candidate, self.held)
            memory.close()
            is_wrong = judged is not None and not judged.right and (
                unusual is None or judged.bad > 0 or judged.used is None or judged.used > GROSS)
            problem = None if judged is None else "is wrong" if is_wrong else ""
        except (PeerError, PeerDied) as error:
            problem, self.has_crashed = f"fails ({error.what})", True
        if problem and not self.tolerance.baseline_is_right(case, self.held):
            problem = None
        if not self.has_crashed:
            self.oracle.drop(case)
        return problem


def sampled_cases(target: Target, config_class: ConfigClass,
                  outputs: int) -> Iterator[UnusualCase]:
    """Yield cases on which a sum over a sample of the elements is wrong, if outputs are sums.

    In float32 the tolerance shows such a sample on any inputs.
    """
    coarse = any(margin(dtype, target.precision) >= ROUNDOFF["tf32"]
                 for dtype in target.output_dtypes)
    changed = {
        tensor.name: {"few": FEW * outputs / elements} for tensor in target.tensors(config_class)
        if tensor.role == "input" and not tensor.data and tensor.dtype in DTYPE_TOLERANCE
        and tensor.low is None and tensor.high is None
        and (elements := math.prod(tensor.shape)) >= SUMMED * max(1, outputs)}
    for kind in ("low", "high") * SUM_DRAWS if outputs and changed and coarse else ():
        yield UnusualCase(distribution=kind, changed=changed,
                          what="inputs that are equal in all but a few places")


def unusual_cases(target: Target, config_class: ConfigClass, *,
                  on_gpu: bool) -> Iterator[UnusualCase]:
    """Yield the unusual cases of a class; what may well crash the baseline too comes last.

    On a GPU an index out of bounds would end the oracle's process, so integers stay in bounds.
    """
    tensors = [tensor for tensor in target.tensors(config_class) if not tensor.data]
    read = [tensor for tensor in tensors if tensor.role in ("input", "inout")
            and tensor.low is None and tensor.high is None]
    for distribution, what in VALUES.items():
        if any(tensor.dtype in DTYPE_TOLERANCE for tensor in read):
            yield UnusualCase(distribution=distribution, what=what)
    literal = {arg.name for arg in target.args if isinstance(arg.value, int | float)}
    if scalars := [tensor for tensor in tensors if tensor.role == "scalar"
                   and tensor.name in literal and tensor.dtype in DTYPE_TOLERANCE]:
        names = ", ".join(tensor.name for tensor in scalars)
        rng = random.SystemRandom()
        yield UnusualCase(
            distribution="rescaled", what=f"other values of {names}",
            hint=f"declare low and high of {names} in the task if they are fixed",
            changed={tensor.name: {"value": rng.uniform(
                0.25 if tensor.low is None else tensor.low,
                1.0 if tensor.high is None else tensor.high)} for tensor in scalars})
    is_c = target.language == "c"
    for layout in FENCES[0 if is_c else 1:]:
        yield UnusualCase(
            distribution="fenced", what="arrays beside " + (
                "memory that cannot be read" if is_c else "other contents than before"),
            hint="it reads or writes outside of them", may_crash=True, changed={
                tensor.name: {"layout": layout} for tensor in tensors if tensor.role != "scalar"})
    if not on_gpu and any(tensor.dtype.startswith(("int", "uint")) for tensor in read):
        yield UnusualCase(distribution="unbounded", may_crash=True,
                          what="integers of the whole range of their dtype")


def _shape(config_class: ConfigClass) -> str:
    return " ".join(f"{name}={size}" for name, size in config_class.shape.items())

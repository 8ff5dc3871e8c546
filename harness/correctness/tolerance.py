"""How far off a candidate may be: a floor by dtype, or a few times the baseline's own error.

An error is relative to the larger of a value and the root mean square of all
(harness/runners/oracle_client.py). Writing a result rounds it, which costs the unit roundoff of its
dtype, once, for everyone. Beyond that the floor allows - float32: 128 unit roundoffs. Sums of K
numbers in any order are off by about sqrt(K/6) of them and by five times that at worst among
millions, 110 for K = 3,000; longer sums, and everything that is worse conditioned, show in the
baseline's own error. bfloat16 or TF32 anywhere inside costs thousands of them. - float32 where the
task says `precision: tf32`: 4 of TF32's, for inputs cut to eleven bits. - half precision and below:
one more of the output's, for one intermediate result of that dtype; sums are held in float32, as
their baselines do. - float64: 8,192, since the reference is no better itself.

Beyond the floor the baseline is run on the same inputs, and FACTOR times its error is allowed, not
counting that last rounding, for another order of summation or another fused step. And since luck
may give a baseline an error of nothing (a blocked sum of equal values is exact), an effect on the
output that as many roundings of the inputs have, typically, is allowed too. A tolerance of the task
is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.case import Case, Errors
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.errors import EnvironmentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.target import DTYPE_TOLERANCE, Target

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-8,
            "float16": 2.0**-11, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}
ROUNDINGS = {"float64": 8192, "float32": 128, "tf32": 4}
FACTOR = 4.0
INTEGER_FACTOR = 2.0
ANYWAY = 0.01
"""Where a task declares nothing, no baseline excuses more, or than is usual for the dtype."""

FLOOR = "the floor of its dtype"
"""The basis of errors that needed no look at the baseline."""
FAILS = Errors(absolute=0.0, relative=None, bad=1)


def rounding(dtype: str) -> float:
    """Return the error of writing a result in a dtype."""
    return ROUNDOFF.get(dtype, 0.0)


def margin(dtype: str, precision: str | None) -> float:
    """Return the error that is allowed beyond the last rounding, whatever the baseline does."""
    computed = "tf32" if dtype == "float32" and precision == "tf32" else dtype
    return ROUNDINGS.get(computed, 1) * ROUNDOFF.get(computed, 0.0)


class Tolerance:
    """Says how far off each case may be; runs the baseline's kernel only where that decides.

    `known` are kernels that are built already, by the tree they come from.
    """

    def __init__(self, stage: Session, oracle: Oracle, baseline: Path,
                 known: dict[str, Kernel] | None = None) -> None:
        self.stage, self.oracle, self.target = stage, oracle, stage.target
        self.notes: list[str] = []
        self._tree, self._known = baseline, known or {}
        self._runner: Peer | None = None
        self._own: dict[tuple[str, int], Errors | None] = {}
        self._unusable = ""
        self._same = False

    def judge(self, case: Case, errors: Errors, candidate: Kernel,
              held: DeviceLock | None) -> Errors | None:
        """Return the errors held against what is allowed; None where the baseline fails as well.

        Only inputs that are not normal are excused so: the baseline was never made for them.
        """
        floors = self._floors(case, len(errors.each))
        judged = errors.against(floors, FLOOR)
        normal = case.distribution == "normal"
        if judged.right or errors.changed or (errors.bad and normal):
            return judged
        own = self._error_of_baseline(case, errors, candidate, held)
        if own is None:
            tolerance = self.target.tolerance_of(self.target.config_class(case.config_class))
            return errors.against([tolerance] * len(floors), "the baseline did not run")
        if not normal and not self._usable(case, own):
            self._note(f"class {case.config_class}: the baseline itself fails on "
                       f"{case.distribution} inputs; not judged by them")
            return None
        if errors.bad:
            return judged
        judged = errors.against(self._capped(case, self._relative(case, own)), self._words(own))
        if judged.right:
            self._note(f"class {case.config_class}: beyond the floor of its dtype on "
                       f"{case.distribution} inputs, within what the baseline is off by")
        return judged

    def floor_of(self, case: Case, output: int) -> float:
        """Return what an output may be off by, whatever the baseline does."""
        return self._floors(case, output + 1)[output]

    def _floors(self, case: Case, count: int) -> list[float]:
        return self._capped(case, [rounding(dtype) + margin(dtype, self.target.precision)
                                   for dtype in self._of(count)])

    def _relative(self, case: Case, own: Errors) -> list[float]:
        compute = "float64" if "float64" in self._dtypes(own) else \
            self.target.precision or "float32"
        nudged = self.oracle.sensitivity(case, ROUNDOFF[compute])
        allowed = []
        for dtype, error, moved in zip(self._dtypes(own), own.each, nudged, strict=True):
            if dtype not in ROUNDOFF:
                allowed.append(INTEGER_FACTOR * (error or 0.0))
                continue
            last = rounding(dtype)
            allowed.append(last + max(
                margin(dtype, self.target.precision), FACTOR * max(0.0, (error or 0.0) - last),
                min(ROUNDINGS[compute], ROUNDINGS["float32"]) * moved))
        return allowed

    def _words(self, own: Errors) -> str:
        return f"the baseline's own error is {own.relative or 0.0:.2g}"

    def _usable(self, case: Case, own: Errors) -> bool:
        return not own.bad and not own.changed and own.against(
            self._capped(case, [1.0] * len(own.each)), "").right

    def _capped(self, case: Case, wanted: Sequence[float]) -> list[float]:
        declared = self.target.declared_tolerance(self.target.config_class(case.config_class))
        caps = [max(ANYWAY, DTYPE_TOLERANCE.get(dtype, 0.0)) for dtype in self._of(len(wanted))] \
            if declared is None else [declared] * len(wanted)
        return [min(one, cap) for one, cap in zip(wanted, caps, strict=True)]

    def _dtypes(self, errors: Errors) -> list[str]:
        return self._of(len(errors.each))

    def _of(self, count: int) -> list[str]:
        return dtypes_of(self.target, count)

    def _error_of_baseline(self, case: Case, errors: Errors, candidate: Kernel,
                           held: DeviceLock | None) -> Errors | None:
        key = case.id, self.oracle.version(case)
        if key not in self._own:
            self._own[key] = self._run_baseline(case, errors, candidate, held)
        return self._own[key]

    def stable(self, case: Case, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Tell whether the baseline gives the same, bit for bit, three times."""
        runner = self._started(candidate, held)
        if runner is None:
            return not self._same
        answers = [self.oracle.judge(case, runner.ask(
            "call", tensors=case.tensors).get("outputs")).digests for _ in range(3)]
        return len(set(answers)) == 1

    def serves(self, case: Case, held: DeviceLock | None) -> bool:
        """Tell whether the baseline itself is right on a case."""
        try:
            kernel = self._kernel()
            runner = self._runner or self.stage.runners.start(kernel, lock=held,
                                                              yields=self.stage.yields)
            self._runner = runner
            answer = runner.ask("call", tensors=case.tensors)
            errors = self.oracle.judge(case, answer.get("outputs"))
        except (BuildError, EnvironmentFault, PeerError, PeerDied):
            self.close()
            return False
        judged = self.judge(case, errors, kernel, held)
        return judged is not None and judged.right

    def _run_baseline(self, case: Case, errors: Errors, candidate: Kernel,
                      held: DeviceLock | None) -> Errors | None:
        runner = self._started(candidate, held)
        if self._same:
            return errors
        if runner is None:
            self._note("the baseline does not run, so that the usual tolerances hold: "
                       + self._unusable)
            return None
        try:
            answer = runner.ask("call", tensors=case.tensors)
            return self.oracle.judge(case, answer.get("outputs"))
        except (PeerError, PeerDied) as error:
            self.close()
            self._note(f"class {case.config_class}: the baseline fails on {case.distribution} "
                       f"inputs: {error.what}")
            return None if case.distribution == "normal" else FAILS

    def _started(self, candidate: Kernel, held: DeviceLock | None) -> Peer | None:
        """Return a runner of the baseline; None where it is the candidate or does not run."""
        try:
            kernel = self._kernel()
            self._same = kernel.identity == candidate.identity
            if self._runner is None and not self._unusable and not self._same:
                self._runner = self.stage.runners.start(kernel, lock=held,
                                                        yields=self.stage.yields)
        except (BuildError, EnvironmentFault, PeerError, PeerDied) as error:
            self._unusable = error.what
        return None if self._same else self._runner

    def _kernel(self) -> Kernel:
        key = str(self._tree)
        if key not in self._known:
            self._known[key] = self.stage.make(self._tree, "baseline")
        return self._known[key]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """End the baseline's runner; what it said is kept."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Tolerance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dtypes_of(target: Target, count: int) -> list[str]:
    """Return the dtypes of so many outputs; the last one stands for those not declared."""
    known = list(target.output_dtypes)
    return (known + [known[-1]] * count)[:count]

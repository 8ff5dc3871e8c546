"""The errors that are allowed: a floor by dtype, or a few times the baseline's own error.

An error is relative to the larger of a value and the root mean square of all values
(harness/runners/oracle_client.py). Writing a result rounds it, which costs one unit roundoff of its
dtype for every kernel. Beyond that the floor allows:

- float32: 128 unit roundoffs. Sums of K numbers in any order are off by about sqrt(K/6) of them,
  and among millions of sums by five times that at worst: 110 for K = 3,000. Longer sums, and all
  that is worse conditioned, show in the baseline's own error. bfloat16 or TF32 anywhere inside
  costs thousands.
- float32 where the task says `precision: tf32`: 4 unit roundoffs of TF32, for inputs cut to eleven
  bits.
- half precision and below: one more unit roundoff of the output's dtype, for one intermediate
  result of that dtype; sums are held in float32, as by the baselines.
- float64: 8,192 unit roundoffs, since the reference itself is not more accurate.

Where an error exceeds the floor, the baseline runs on the same inputs. Beside the last rounding,
the largest of three is then allowed: the floor; FACTOR times the baseline's error without that
rounding, for another order of summation or other fused operations; and, since a baseline may by
luck have no error (a blocked sum of equal values is exact), the typical effect on the output of
rounding the inputs, times 128 (4 where float32 may take TF32). On equal values sums of another
order are all off by the same amount, which a layer norm multiplies by 300: there INNER times the
effect of rounding each operation of a PyTorch reference is allowed as well. A tolerance that the
task declares is never exceeded. Without one, the limit is LARGEST_UNDECLARED, or the usual
tolerance of the dtype if that is larger. Where a tensor has half precision or less, or float32 may
take TF32, the limit on normal inputs is OF_BASELINE times the baseline's own error if that is more,
up to LARGEST_OF_BASELINE: attention in bfloat16 rounds its weights, and is off by 3 % of the
output's scale. A float32 kernel that is off by as much computes something else than the reference.

A row or column whose values are small beside all others could be left out within these errors. So
its error relative to its own size counts too, if it is gross and the baseline's is small. Where
the order of summation alone makes it gross, the baseline's is not small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from harness.case import Case, Errors
from harness.compile.kernel import Kernel
from harness.correctness.baseline_runner import BaselineRunner
from harness.isolation.device_lock import DeviceLock
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.tasks.target import DTYPE_TOLERANCE, Target

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-8,
            "float16": 2.0**-11, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}
ROUNDINGS = {"float64": 8192, "float32": 128, "tf32": 4}
FACTOR = 4.0
INTEGER_FACTOR = 2.0
LARGEST_UNDECLARED = 0.01
"""Largest allowed error without a declared tolerance, or the usual one of the dtype if larger."""
OF_BASELINE, LARGEST_OF_BASELINE = 2.0, 0.1

ALIKE, DRAWS, NOT_BY_LUCK = ("constant", "tied", "low", "high"), 4, 16.0
"""Sums of equal values all round in one direction, by an amount that depends on the values. Before
an error on such inputs counts as wrong, the baseline runs on DRAWS further draws of them, unless
the error is NOT_BY_LUCK times what is allowed.
"""
INNER = 32.0
"""So many times the effect of rounded operations is allowed: sums of K equal values in a tree are
off by log2(K) roundoffs at worst."""
LOST, LOST_BY_BASELINE = 0.5, 0.05
"""A row or column with this error relative to its own size is lost; one below the second is not."""
SMALL_VALUES = "of a row or column of small values, which the baseline computes"
FLOOR = "the floor of its dtype"
"""The basis of errors that were judged without the baseline."""


def rounding(dtype: str) -> float:
    """Return the error of writing a result in a dtype."""
    return ROUNDOFF.get(dtype, 0.0)


def margin(dtype: str, precision: str | None) -> float:
    """Return the error allowed beyond the last rounding, whatever the baseline's own error is."""
    computed = "tf32" if dtype == "float32" and precision == "tf32" else dtype
    return ROUNDINGS.get(computed, 1) * ROUNDOFF.get(computed, 0.0)


class Tolerance:
    """Judges the errors of each case; runs the baseline's kernel only where that decides.

    `known` are kernels that are built already, by the tree they come from.
    """

    def __init__(self, session: Session, oracle: Oracle, baseline: Path,
                 known: dict[str, Kernel] | None = None) -> None:
        self.oracle, self.target = oracle, session.target
        self.notes: list[str] = []
        self._ill_conditioned: set[str] = set()
        """The cases on which the baseline's own error exceeds the floor."""
        self.baseline = BaselineRunner(session, oracle, baseline, known or {}, self._note)

    def judge(self, case: Case, errors: Errors, candidate: Kernel,
              held: DeviceLock | None) -> Errors | None:
        """Return the errors with what is allowed; None if the baseline fails on the case as well.

        That excuses a candidate only on inputs that are not normal, for which the baseline was
        never made.
        """
        floors = self._floors(case, len(errors.each))
        judged = errors.against(floors, FLOOR)
        normal = case.distribution == "normal"
        if judged.right:
            return self._wrong_if_small_row_lost(case, judged, candidate, held)
        if errors.changed or (errors.bad and normal):
            return judged
        standard = self.baseline.errors(case, errors, candidate, held)
        if standard is None or not standard.against(floors, FLOOR).right:
            self._ill_conditioned.add(case.id)
        if standard is None:
            tolerance = self.target.tolerance_of(self.target.config_class(case.config_class))
            return errors.against([tolerance] * len(floors), "the baseline did not run")
        if not normal and not self._is_usable(case, standard):
            self._note(f"class {case.config_class}: not judged on {case.distribution} inputs: the "
                       "baseline itself fails on them")
            return None
        if errors.bad:
            return judged
        limits = self._capped(case, self._relative(case, standard), standard)
        used = errors.against(limits, "").used
        if case.distribution in ALIKE and used is not None and 1 < used <= NOT_BY_LUCK:
            standard = self._on_other_draws(case, standard, candidate, held)
            limits = self._capped(case, self._relative(case, standard), standard)
        if case.distribution in ALIKE and not errors.against(limits, "").right:
            limits = self._capped(case, self._relative(case, standard, inner=True), standard)
        judged = errors.against(limits, "this is the baseline itself"
                                if self.baseline.has_code_of(candidate) else
                                f"the baseline's own error is {standard.relative or 0.0:.2g}")
        if limits != self._capped(case, limits):
            self._note(f"class {case.config_class}: the baseline's own error, "
                       f"{standard.relative or 0.0:.2g} of the output's scale, is large for its "
                       f"dtype: up to {max(limits):.2g} is allowed, unless the task states a "
                       "tolerance")
        if normal and not standard.against(limits, "").right:
            self._note(f"class {case.config_class}: the baseline's own error is too large as well: "
                       "check the reference, or state a tolerance in the task")
        if judged.right:
            judged = self._wrong_if_small_row_lost(case, judged, candidate, held)
        if judged.right:
            self._note(f"class {case.config_class}: the error exceeds the floor of its dtype on "
                       f"{case.distribution} inputs, but not what the baseline's error allows")
        return judged

    def is_well_conditioned(self, case: Case) -> bool:
        """Return whether the baseline is within the floor on a judged case.

        True also where the candidate is within the floor: the baseline did not run there.
        """
        return case.id not in self._ill_conditioned

    def _on_other_draws(self, case: Case, standard: Errors, candidate: Kernel,
                        held: DeviceLock | None) -> Errors:
        """Return the baseline's largest errors on a case and on others of its kind and class."""
        for _ in range(DRAWS):
            other = self.oracle.make(self.target.config_class(case.config_class),
                                     case.distribution, case,
                                     {tensor["name"]: tensor for tensor in case.tensors})
            errors = None if other.skip else self.baseline.errors(other, standard, candidate, held)
            if errors is not None and self._is_usable(other, errors):
                standard = replace(errors.worse(standard), each=tuple(
                    max(pair, key=lambda error: error or 0.0)
                    for pair in zip(errors.each, standard.each, strict=True)))
            self.oracle.drop(other)
        return standard

    def _wrong_if_small_row_lost(self, case: Case, judged: Errors, candidate: Kernel,
                                 held: DeviceLock | None) -> Errors:
        """Return `judged`, which is right, as wrong if only the candidate loses a row or column.

        A loss is an error above LOST; one above LOST_BY_BASELINE of the baseline's excuses it.
        """
        if judged.lost <= LOST:
            return judged
        standard = self.baseline.errors(case, judged, candidate, held)
        if standard is None or standard.lost > LOST_BY_BASELINE:
            return judged
        return replace(judged, used=judged.lost / LOST, over=judged.lost, allowed=LOST,
                       basis=SMALL_VALUES)

    def baseline_is_right(self, case: Case, held: DeviceLock | None) -> bool:
        """Return whether the baseline itself is right on a case."""
        alone = self.baseline.run_alone(case, held)
        if alone is None:
            return False
        kernel, errors = alone
        judged = self.judge(case, errors, kernel, held)
        return judged is not None and judged.right

    def problem_of_baseline(self, case: Case, candidate: Kernel, held: DeviceLock | None) -> str:
        """Return why the baseline cannot be the standard on a case, empty if it is right.

        It is empty too if the candidate has the baseline's code, which is then judged itself.
        """
        if self.baseline.has_code_of(candidate):
            return ""
        problem = self.baseline.failure(case, held)
        if not problem and not self.baseline_is_right(case, held):
            problem = "its answer is wrong"
        return problem

    def floor_of(self, case: Case, output: int) -> float:
        """Return an output's error that is allowed whatever the baseline's own error is."""
        return self._floors(case, output + 1)[output]

    def _floors(self, case: Case, count: int) -> list[float]:
        return self._capped(case, [rounding(dtype) + margin(dtype, self.target.precision)
                                   for dtype in dtypes_of(self.target, count)])

    def _relative(self, case: Case, standard: Errors, *, inner: bool = False) -> list[float]:
        """Return the error of each output that the baseline's own errors allow.

        With `inner`, the operations of the reference are rounded too, not its inputs alone.
        """
        dtypes = dtypes_of(self.target, len(standard.each))
        compute = "float64" if "float64" in dtypes else self.target.precision or "float32"
        sensitivity = self.oracle.sensitivity(case, ROUNDOFF[compute])
        changes: tuple[float, ...] = (0.0,) * len(dtypes)
        if inner:
            changes, problem = self.oracle.inner_sensitivity(case, ROUNDOFF[compute])
            if problem:
                self._note(f"the reference cannot run with rounded operations: {problem}")
        allowed = []
        for dtype, error, moved, inside in zip(dtypes, standard.each, sensitivity, changes,
                                               strict=True):
            if dtype not in ROUNDOFF:
                allowed.append(INTEGER_FACTOR * (error or 0.0))
                continue
            last = rounding(dtype)
            allowed.append(last + max(
                margin(dtype, self.target.precision), FACTOR * max(0.0, (error or 0.0) - last),
                min(ROUNDINGS[compute], ROUNDINGS["float32"]) * moved, INNER * inside))
        return allowed

    def _is_usable(self, case: Case, standard: Errors) -> bool:
        return not standard.bad and not standard.changed and standard.against(
            self._capped(case, [1.0] * len(standard.each)), "").right

    def _capped(self, case: Case, errors: Sequence[float],
                standard: Errors | None = None) -> list[float]:
        """Return errors cut to the limits; `standard` are the baseline's on the same inputs."""
        declared = self.target.declared_tolerance(self.target.config_class(case.config_class))
        if declared is not None:
            return [min(error, declared) for error in errors]
        is_normal = standard is not None and case.distribution == "normal"
        each = standard.each if standard is not None and is_normal and self._rounds_coarsely else ()
        return [min(error, max(
            LARGEST_UNDECLARED, DTYPE_TOLERANCE.get(dtype, 0.0),
            min(LARGEST_OF_BASELINE, OF_BASELINE * (by_baseline or 0.0))))
            for dtype, error, by_baseline in zip(
                dtypes_of(self.target, len(errors)), errors, each or [None] * len(errors),
                strict=True)]

    @cached_property
    def _rounds_coarsely(self) -> bool:
        """Whether a tensor has half precision or less, or float32 products may take TF32."""
        dtypes = (self.target.precision or "", *self.target.output_dtypes,
                  *(arg.dtype for arg in self.target.args))
        return any(rounding(dtype) >= ROUNDOFF["tf32"] for dtype in dtypes)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """End the baseline's process; its results are kept."""
        self.baseline.close()

    def __enter__(self) -> Tolerance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dtypes_of(target: Target, count: int) -> list[str]:
    """Return the dtypes of the first `count` outputs; the last declared one is repeated."""
    known = list(target.output_dtypes)
    return (known + [known[-1]] * count)[:count]

"""A C kernel may take unsigned, boolean and 16-bit values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.discovery.project import sources
from tests.support.kernels import c_case

SOURCE = """#include <stdbool.h>
#include <stdint.h>
void twice(const uint16_t *a, const unsigned int *b, const bool *keep, const _Float16 *h,
           short *out, unsigned long n, _Bool doubled, short offset) {
    for (unsigned long i = 0; i < n; i++) {
        int v = a[i] + (int)b[i] + (int)h[i];
        out[i] = (short)((keep[i] ? v : -v) * (doubled ? 2 : 1) + offset);
    }
}
"""
REFERENCE = """def twice(a, b, keep, h, doubled, offset):
    v = a.astype("int64") + b + h.astype("int64")
    return v * (2 * (keep != 0) - 1) * (1 + doubled) + offset
"""


def test_c_kernel_of_unsigned_bool_and_16_bit_arguments_is_judged(tmp_path: Path) -> None:
    [found] = sources.c_functions(SOURCE)
    assert [arg.dtype for arg in found.args] == ["int16", "int32", "uint8", "float16", "int16",
                                                 "int64", "uint8", "int16"]
    assert (found.args[2].low, found.args[2].high) == (0, 2)
    values = {"doubled": 1, "offset": -300}
    args = tuple(replace(arg, value=values.get(arg.name, arg.value)) if arg.shape is None
                 else replace(arg, shape=("n",)) for arg in found.args)
    task = c_case.target(args=args)
    verdict = c_case.judge(tmp_path, SOURCE, incumbent=SOURCE, reference=REFERENCE, task=task)
    assert verdict.correct, verdict
    wrong = SOURCE.replace("keep[i] ? v : -v", "v")
    assert not c_case.judge(tmp_path, wrong, incumbent=SOURCE, reference=REFERENCE,
                            task=task).correct

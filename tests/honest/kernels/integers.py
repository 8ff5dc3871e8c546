"""Honest: integers summed in another order, with exact results.

Nothing is rounded, so the results must be equal.
"""

from harness.tasks.target import Arg
from tests.honest import case
from tests.honest.case import Honest, problems

HEAD = problems.INCLUDES + """
void running(const int32_t *x, int32_t *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, x += cols, out += cols) {
"""
SLOW = "for (int64_t c = 0; c < cols; c++) { out[c] = 0; " \
       "for (int64_t i = 0; i <= c; i++) out[c] += x[i]; } }\n}\n"
FAST = "int32_t sum = 0; for (int64_t c = 0; c < cols; c++) out[c] = sum += x[c]; }\n}\n"
PROBLEM = case.texts(case.posed(
    problems.SOFTPLUS, entry="running", op="running", reference="reference.py:running",
    args=(Arg(name="x", dtype="int32", shape=("rows", "cols"), low=-1000, high=1000),
          Arg(name="out", dtype="int32", shape=("rows", "cols"), role="output"),
          *problems.GEMV.target.args[3:])), incumbent=HEAD + SLOW,
    reference="import numpy as np\ndef running(x):\n    return np.cumsum(x, axis=1)\n")
HONEST = Honest(title="integers summed in another order", source=HEAD + FAST, problem=PROBLEM)

"""Honest: an operation in place, whose output is its input.

Each call overwrites its input, so the harness refills the buffer before the next one.
"""

from harness.tasks.target import Arg, ConfigClass
from tests.honest import case
from tests.honest.case import Honest, problems

HEAD = problems.INCLUDES + "void halve(float *x, int64_t n) {\n"
WORK = "for (int64_t i = 0; i < n; i++) x[i] = x[i] > 0 ? x[i] / 2 : 0;\n"
SLOW = "for (int64_t i = 0; i < n; i++) x[i] = fmax(fabs((double)x[i] / 2) + x[i] / 2, 0) / 2;\n"
PROBLEM = case.posed(
    problems.SOFTPLUS, entry="halve", op="halve", reference="reference.py:halve",
    args=(Arg(name="x", dtype="float32", shape=("n",), role="inout"),
          Arg(name="n", dtype="int64", value="n")),
    classes=(ConfigClass(name="small", shape={"n": 5000}),))
PROBLEM = case.texts(PROBLEM, incumbent=HEAD + SLOW + "}\n",
                     reference="import numpy as np\ndef halve(x):\n"
                               "    return np.maximum(x, 0) / 2\n")
HONEST = Honest(title="an operation in place", source=HEAD + WORK + "}\n", problem=PROBLEM,
                like=(34,))

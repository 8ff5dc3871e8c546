"""Honest: OpenMP threads, which stay in their pool between the calls.

The pool adds threads to the process, but they only work during a call.
"""

from tests.honest import case
from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    #pragma omp parallel for
    for (int64_t r = 0; r < rows; r++)
        product(w + r * cols, x, out + r, 1, cols);
""")
HONEST = Honest(title="OpenMP threads, which stay in their pool", source=SOURCE, like=(2,),
                problem=case.posed(problems.GEMV, build=("-O2", "-fopenmp")),
                settings={"env": {"OMP_NUM_THREADS": "2"}})

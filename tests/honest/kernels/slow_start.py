"""Honest: only the first call is slow.

It builds its tables on the first call, as a just-in-time compiler does.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    if (!ready) {
        for (int64_t i = 0; i < 4000000; i++) sink += sqrtf((float)i);
        ready = 1;
    }
    product(w, x, out, rows, cols);
""", """
static int ready;
static volatile float sink;
""")
HONEST = Honest(title="only the first call is slow", source=SOURCE,
                problem=problems.GEMV, like=(13,))

"""Honest: slow on its first call, and on no other.

It lays out its tables when it is first called, as a compiler at run time would.
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
HONEST = Honest(title="slow on its first call, and on no other", source=SOURCE,
                problem=problems.GEMV, like=(13,))

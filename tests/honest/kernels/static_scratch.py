"""Honest: a static scratch buffer that every call rewrites.

It grows on demand and holds data of the current call only.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    if (room < cols) {
        free(scratch);
        scratch = malloc(4 * cols);
        room = cols;
    }
    memcpy(scratch, x, 4 * cols);
    product(w, scratch, out, rows, cols);
""", """
static float *scratch;
static int64_t room;
""")
HONEST = Honest(title="a static scratch buffer that every call rewrites", source=SOURCE,
                problem=problems.GEMV, like=(27, 28, 33))

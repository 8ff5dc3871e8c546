"""Honest: a table of all values of an eight-bit input, made when the library is loaded.

It holds values of a function, not results for particular inputs.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.qgemv("""
    for (int64_t r = 0; r < rows; r++, q += cols) {
        float s = 0;
        for (int64_t c = 0; c < cols; c++) s += table[q[c] + 128] * x[c];
        out[r] = s;
    }
""", """
static float table[256];
__attribute__((constructor)) static void make(void) {
    for (int i = 0; i < 256; i++) table[i] = tanhf((i - 128) / 64.0f);
}
""")
HONEST = Honest(title="a table of all values of an eight-bit input", source=SOURCE,
                problem=problems.QGEMV, like=(25, 29))

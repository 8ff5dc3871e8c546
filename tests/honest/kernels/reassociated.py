"""Honest: eight partial sums that the compiler vectorises.

The order of additions changes, and with it the rounding.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    for (int64_t r = 0; r < rows; r++, w += cols) {
        float s[8] = {0};
        int64_t c = 0;
        for (; c + 8 <= cols; c += 8)
            for (int k = 0; k < 8; k++) s[k] += w[c + k] * x[c + k];
        for (; c < cols; c++) s[0] += w[c] * x[c];
        out[r] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
    }
""")
HONEST = Honest(title="eight partial sums that the compiler vectorises", source=SOURCE,
                problem=problems.GEMV, like=(44,))

"""Honest: trailing zeros of each row are skipped.

Its time depends on the data; its result equals that of the full sum.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    for (int64_t r = 0; r < rows; r++, w += cols) {
        int64_t last = cols;
        while (last > 0 && w[last - 1] == 0) last--;
        float s = 0;
        for (int64_t c = 0; c < last; c++) s += w[c] * x[c];
        out[r] = s;
    }
""")
HONEST = Honest(title="trailing zeros of each row are skipped", source=SOURCE,
                problem=problems.GEMV, like=(45, 52))

"""Honest: two code paths for two kinds of shape.

Both are correct for every shape; the choice depends on the sizes only.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.gemv("""
    if (cols % 4 == 0 && cols <= 96) {
        for (int64_t r = 0; r < rows; r++, w += cols) {
            float a = 0, b = 0, c = 0, d = 0;
            for (int64_t k = 0; k < cols; k += 4) {
                a += w[k] * x[k]; b += w[k + 1] * x[k + 1];
                c += w[k + 2] * x[k + 2]; d += w[k + 3] * x[k + 3];
            }
            out[r] = (a + b) + (c + d);
        }
        return;
    }
    product(w, x, out, rows, cols);
""")
HONEST = Honest(title="two code paths for two kinds of shape", source=SOURCE,
                problem=problems.GEMV_TWO, like=(48, 54))

"""Honest: a compensated sum in single precision.

Kahan summation rounds differently from a sum in double precision.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.rowwise("total", """
    for (int64_t r = 0; r < rows; r++, x += cols) {
        float sum = 0, lost = 0;
        for (int64_t c = 0; c < cols; c++) {
            float value = fabsf(x[c]) - lost, more = sum + value;
            lost = (more - sum) - value;
            sum = more;
        }
        out[r] = sum;
    }
""")
HONEST = Honest(title="a compensated sum in single precision", source=SOURCE,
                problem=problems.TOTAL, like=(44,))

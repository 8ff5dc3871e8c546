"""Honest: restrict, assumed alignment and instructions of the processor (AVX2, FMA).

Where the processor lacks these instructions, the kernel runs plain C.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.INCLUDES + """
#define FAST_WAYS
#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2,fma")))
#define HAS_WIDE (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define WIDE
#define HAS_WIDE 0
#endif
#define BODY \\
    w = __builtin_assume_aligned(w, 16); \\
    x = __builtin_assume_aligned(x, 16); \\
    for (int64_t r = 0; r < rows; r++) { \\
        float s[8] = {0}; \\
        for (int64_t c = 0; c < cols; c++) s[c % 8] += w[r * cols + c] * x[c]; \\
        out[r] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7])); \\
    }
#define ARGS (const float *restrict w, const float *restrict x, float *restrict out, \\
              int64_t rows, int64_t cols)
WIDE static void wide ARGS { BODY }
static void plain ARGS { BODY }
void gemv ARGS {
    if (HAS_WIDE) wide(w, x, out, rows, cols);
    else plain(w, x, out, rows, cols);
}
"""
HONEST = Honest(title="restrict, assumed alignment and instructions", source=SOURCE,
                problem=problems.GEMV, like=(54,))

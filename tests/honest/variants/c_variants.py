"""Honest kernels in C: usual ways to write a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.honest import case
from tests.honest.case import Honest, problems
from tests.honest.variants.variant import Variant

WRITERS: dict[str, Callable[[str, str], str]] = {
    "gemv": problems.gemv, "qgemv": problems.qgemv, "blend": problems.blend,
    "rectify": problems.rectify, "matmul": problems.matmul, "moments": problems.moments,
    "softplus": partial(problems.rowwise, "softplus"), "total": partial(problems.rowwise, "total"),
    "rms": partial(problems.rowwise, "rms")}


def c(id: str, title: str, body: str, before: str = "", *,
      problem: problems.Problem = problems.GEMV, **fields: Any) -> Variant:
    source = WRITERS[problem.target.entry](body, before)
    return Variant(id, Honest(title=title, source=source, problem=problem, **fields))


def built(problem: problems.Problem, *flags: str) -> problems.Problem:
    return case.posed(problem, build=(*problem.target.build, *flags))


VARIANTS = [
    c("assembly-barrier", "an empty assembly statement after each sum", """
        for (int64_t r = 0; r < rows; r++) {
            float s = 0;
            for (int64_t c = 0; c < cols; c++) s += w[r * cols + c] * x[c];
            __asm__ volatile("" : "+x"(s));
            out[r] = s;
        }
      """),
    c("openmp-simd", "a loop that is declared free of dependencies", """
        for (int64_t r = 0; r < rows; r++) {
            float s = 0;
            #pragma omp simd reduction(+ : s)
            for (int64_t c = 0; c < cols; c++) s += w[r * cols + c] * x[c];
            out[r] = s;
        }
      """, problem=built(problems.GEMV, "-fopenmp-simd", "-O3")),
    c("blocked", "blocks that fit the cache", """
        memset(out, 0, 4 * n * n);
        for (int64_t kk = 0; kk < n; kk += 8)
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = kk; k < kk + 8 && k < n; k++)
                    for (int64_t j = 0; j < n; j++) out[i * n + j] += a[i * n + k] * b[k * n + j];
      """, problem=problems.MATMUL),
    c("recursive", "a recursion that halves the inner dimension", """
        memset(out, 0, 4 * n * n);
        add(a, b, out, n, 0, n);
      """, """
static void add(const float *a, const float *b, float *out, int64_t n, int64_t from, int64_t to) {
    if (to - from > 6) {
        int64_t middle = (from + to) / 2;
        add(a, b, out, n, from, middle);
        add(a, b, out, n, middle, to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = from; k < to; k++)
            for (int64_t j = 0; j < n; j++) out[i * n + j] += a[i * n + k] * b[k * n + j];
}
""", problem=problems.MATMUL),
    c("unrolled", "eight sums at a time", """
        for (int64_t r = 0; r < rows; r++, w += cols) {
            float s[8] = {0};
            int64_t c = 0;
            for (; c + 8 <= cols; c += 8)
                for (int k = 0; k < 8; k++) s[k] += w[c + k] * x[c + k];
            for (; c < cols; c++) s[0] += w[c] * x[c];
            out[r] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        }
      """),
    c("vector-types", "the compiler's own vectors", """
        for (int64_t r = 0; r < rows; r++, w += cols) {
            four s = {0, 0, 0, 0};
            int64_t c = 0;
            float rest = 0;
            for (; c + 4 <= cols; c += 4) s += *(const four *)(w + c) * *(const four *)(x + c);
            for (; c < cols; c++) rest += w[c] * x[c];
            out[r] = s[0] + s[1] + s[2] + s[3] + rest;
        }
      """, "typedef float four __attribute__((vector_size(16), aligned(4)));"),
    c("intrinsics", "intrinsics where the processor has them", """
        if (__builtin_cpu_supports("avx2") && cols % 8 == 0) wide(w, x, out, rows, cols);
        else product(w, x, out, rows, cols);
      """, """
#include <immintrin.h>
__attribute__((target("avx2"))) static void wide(const float *w, const float *x, float *out,
                                                 int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, w += cols) {
        __m256 s = _mm256_setzero_ps();
        for (int64_t c = 0; c < cols; c += 8)
            s = _mm256_add_ps(s, _mm256_mul_ps(_mm256_loadu_ps(w + c), _mm256_loadu_ps(x + c)));
        float p[8];
        _mm256_storeu_ps(p, s);
        out[r] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    }
}
"""),
    c("restrict", "operands that do not overlap", "plain(w, x, out, rows, cols);", """
static void plain(const float *restrict w, const float *restrict x, float *restrict out,
                  int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0;
        for (int64_t c = 0; c < cols; c++) out[r] += w[r * cols + c] * x[c];
    }
}
"""),
    c("prefetch", "the next row is fetched ahead", """
        for (int64_t r = 0; r < rows; r++, w += cols) {
            for (int64_t c = 0; c < cols && r + 1 < rows; c += 16)
                __builtin_prefetch(w + cols + c, 0, 3);
            product(w, x, out + r, 1, cols);
        }
      """),
    c("by-columns", "columns are added up in the output itself", """
        for (int64_t r = 0; r < rows; r++) out[r] = 0;
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = 0; r < rows; r++) out[r] += w[r * cols + c] * x[c];
      """),
    c("skipped-zeros", "columns whose factor is zero are skipped", """
        int64_t count = 0;
        int at[4096];
        if (cols > 4096) { product(w, x, out, rows, cols); return; }
        for (int64_t c = 0; c < cols; c++) if (x[c] != 0) at[count++] = (int)c;
        for (int64_t r = 0; r < rows; r++, w += cols) {
            float s = 0;
            for (int64_t k = 0; k < count; k++) s += w[at[k]] * x[at[k]];
            out[r] = s;
        }
      """),
    c("function-table", "one of several loops, by the number of columns", """
        static void (*const loops[])(const float *, const float *, float *, int64_t, int64_t) = {
            product, by_two};
        loops[cols % 2 == 0](w, x, out, rows, cols);
      """, """
static void by_two(const float *w, const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, w += cols) {
        float s = 0, t = 0;
        for (int64_t c = 0; c < cols; c += 2) { s += w[c] * x[c]; t += w[c + 1] * x[c + 1]; }
        out[r] = s + t;
    }
}
"""),
    c("pairwise", "halves are added, down to eight terms", """
        for (int64_t r = 0; r < rows; r++) out[r] = (float)half(x + r * cols, cols);
      """, """
static float half(const float *v, int64_t n) {
    if (n > 8) return half(v, n / 2) + half(v + n / 2, n - n / 2);
    float s = 0;
    for (int64_t i = 0; i < n; i++) s += fabsf(v[i]);
    return s;
}
""", problem=problems.TOTAL),
    c("double-sums", "sums in double precision", """
        for (int64_t r = 0; r < rows; r++, w += cols) {
            double s = 0;
            for (int64_t c = 0; c < cols; c++) s += (double)w[c] * x[c];
            out[r] = (float)s;
        }
      """),
    c("one-pass-moments", "both moments in one pass, by Welford's method", """
        for (int64_t r = 0; r < rows; r++, x += cols) {
            double m = 0, q = 0;
            for (int64_t c = 0; c < cols; c++) {
                double d = x[c] - m;
                m += d / (c + 1);
                q += d * (x[c] - m);
            }
            mean[r] = (float)m;
            var[r] = (float)(q / cols);
        }
      """, problem=problems.MOMENTS),
    c("in-place-by-four", "four elements of an operand in place", """
        int64_t i = 0;
        for (; i + 4 <= n; i += 4)
            for (int k = 0; k < 4; k++) m[i + k] += 0.1f * (g[i + k] - m[i + k]);
        for (; i < n; i++) m[i] += 0.1f * (g[i] - m[i]);
      """, problem=problems.BLEND),
    c("in-place-by-a-copy", "the new values are made elsewhere and copied back", """
        float *next = malloc(4 * n);
        for (int64_t i = 0; i < n; i++) next[i] = 0.9f * m[i] + 0.1f * g[i];
        memcpy(m, next, 4 * n);
        free(next);
      """, problem=problems.BLEND),
    c("in-place-by-bits", "negative values are found by their sign", """
        uint32_t *bits = (uint32_t *)x;
        for (int64_t i = 0; i < n; i++) bits[i] &= ~-(bits[i] >> 31);
      """, problem=built(problems.RECTIFY, "-fno-strict-aliasing")),
    c("in-place-writes-few", "only negative values are written", """
        for (int64_t i = 0; i < n; i++) if (x[i] < 0) x[i] = 0;
      """, problem=problems.RECTIFY),
    c("single-precision", "exponentials in single precision, by a formula of their own", """
        for (int64_t i = 0; i < rows * cols; i++) {
            float v = fabsf(x[i]);
            out[i] = log1pf(expf(-v)) + (x[i] > 0 ? x[i] : 0);
        }
      """, problem=problems.SOFTPLUS),
]

/* Single-precision matrix product, row-major: c[m][n] = sum over k of a[m][k] * b[k][n]. */
#include <stdint.h>

#define TILE_M 4  /* kopt: knob TILE_M in [1, 2, 4, 8, 16] rows of c worked on together */
#define TILE_N 8  /* kopt: knob TILE_N in [4, 8, 16, 32, 64] columns of c worked on together */
#define TILE_K 16  /* kopt: knob TILE_K in [8, 16, 32, 64, 128, 256] depth of one step */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void matmul(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m * n; i++) c[i] = 0.0f;
    for (int64_t i0 = 0; i0 < m; i0 += TILE_M)
        for (int64_t j0 = 0; j0 < n; j0 += TILE_N)
            for (int64_t p0 = 0; p0 < k; p0 += TILE_K)
                for (int64_t i = i0; i < smaller(i0 + TILE_M, m); i++)
                    for (int64_t j = j0; j < smaller(j0 + TILE_N, n); j++) {
                        float sum = c[i * n + j];
                        for (int64_t p = p0; p < smaller(p0 + TILE_K, k); p++)
                            sum += a[i * k + p] * b[p * n + j];
                        c[i * n + j] = sum;
                    }
}

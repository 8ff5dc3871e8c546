/* Single-precision matrix product, row-major: c[m][n] = sum over k of a[m][k] * b[k][n]. */
#include <stdint.h>

#define TILE_M 1  /* kopt: knob TILE_M in [1, 2, 4, 8] rows of c worked on together */
#define TILE_N 1  /* kopt: knob TILE_N in [1, 4, 8, 16, 32] columns of c worked on together */
#define TILE_K 64  /* kopt: knob TILE_K in [16, 32, 64, 128, 256] depth of one step */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Adds one step of depth to `rows` by `cols` results. */
static inline void tile(const float *a, const float *b, float *c, int64_t n, int64_t k,
                        int64_t depth, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++) {
        float sums[TILE_N] = {0};
        for (int64_t p = 0; p < depth; p++)
            for (int64_t j = 0; j < cols; j++) sums[j] += a[i * k + p] * b[p * n + j];
        for (int64_t j = 0; j < cols; j++) c[i * n + j] += sums[j];
    }
}

void matmul(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m * n; i++) c[i] = 0.0f;
    for (int64_t i = 0; i < m; i += TILE_M)
        for (int64_t j = 0; j < n; j += TILE_N)
            for (int64_t p = 0; p < k; p += TILE_K) {
                int64_t rows = smaller(TILE_M, m - i), depth = smaller(TILE_K, k - p);
                const float *left = a + i * k + p, *right = b + p * n + j;
                if (n - j >= TILE_N)
                    tile(left, right, c + i * n + j, n, k, depth, rows, TILE_N);
                else
                    tile(left, right, c + i * n + j, n, k, depth, rows, n - j);
            }
}

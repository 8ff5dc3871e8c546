/* Root-mean-square normalisation, row by row: out = x / sqrt(mean(x^2) + eps) * weight. */
#include <math.h>
#include <stdint.h>

#define LANES 1  /* kopt: knob LANES in [1, 2, 4, 8, 16, 32] independent partial sums */
#define CHUNK 64  /* kopt: knob CHUNK in [16, 32, 64, 128, 256] columns scaled at a time */

void rmsnorm(const float *x, const float *weight, float *out, int64_t rows, int64_t cols,
             float eps) {
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * cols;
        float partial[LANES] = {0};
        int64_t c = 0;
        for (; c + LANES <= cols; c += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float value = row[c + lane];
                partial[lane] += value * value;
            }
        for (; c < cols; c++) partial[0] += row[c] * row[c];
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; lane++) sum += partial[lane];

        for (int64_t begin = 0; begin < cols; begin += CHUNK) {
            int64_t end = begin + CHUNK < cols ? begin + CHUNK : cols;
            for (int64_t k = begin; k < end; k++)
                out[r * cols + k] = row[k] / sqrtf(sum / (float)cols + eps) * weight[k];
        }
    }
}

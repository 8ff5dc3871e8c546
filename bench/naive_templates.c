/* The ops of knowledge/backend/c as one would write them first: what -O3 makes of plain loops. */
#include <math.h>
#include <stdint.h>

void softmax(const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        float most = x[r * cols], total = 0.0f;
        for (int64_t c = 1; c < cols; c++) most = fmaxf(most, x[r * cols + c]);
        for (int64_t c = 0; c < cols; c++) total += out[r * cols + c] = expf(x[r * cols + c] - most);
        for (int64_t c = 0; c < cols; c++) out[r * cols + c] /= total;
    }
}

void layernorm(const float *x, const float *weight, const float *bias, float *out, int64_t rows,
               int64_t cols, float eps) {
    for (int64_t r = 0; r < rows; r++) {
        float mean = 0.0f, squares = 0.0f;
        for (int64_t c = 0; c < cols; c++) mean += x[r * cols + c];
        mean /= (float)cols;
        for (int64_t c = 0; c < cols; c++) {
            float apart = x[r * cols + c] - mean;
            squares += apart * apart;
        }
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] = (x[r * cols + c] - mean) / sqrtf(squares / (float)cols + eps)
                * weight[c] + bias[c];
    }
}

void rmsnorm(const float *x, const float *weight, float *out, int64_t rows, int64_t cols,
             float eps) {
    for (int64_t r = 0; r < rows; r++) {
        float squares = 0.0f;
        for (int64_t c = 0; c < cols; c++) squares += x[r * cols + c] * x[r * cols + c];
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] = x[r * cols + c] / sqrtf(squares / (float)cols + eps) * weight[c];
    }
}

void rowsum(const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0.0f;
        for (int64_t c = 0; c < cols; c++) out[r] += x[r * cols + c];
    }
}

void silu(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] / (1.0f + expf(-x[i]));
}

void gelu(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void transpose(const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) out[c * rows + r] = x[r * cols + c];
}

void matmul(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int64_t p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}

void linear(const float *a, const float *b, const float *bias, float *c, int64_t m, int64_t n,
            int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = bias[j];
            for (int64_t p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}

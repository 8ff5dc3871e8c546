/* Layer normalisation of rows of float32, forward and backward, as a textbook writes it down. */
#include <math.h>
#include <stdint.h>

#define EPS 1e-5

static void moments(const float *row, int64_t cols, double *mean, double *variance) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < cols; i++) sum += row[i];
    *mean = sum / (double)cols;
    for (int64_t i = 0; i < cols; i++) squares += (row[i] - *mean) * (row[i] - *mean);
    *variance = squares / (double)cols;
}

void forward(const float *x, float *y, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        double mean, variance;
        moments(x + r * cols, cols, &mean, &variance);
        for (int64_t i = 0; i < cols; i++)
            y[r * cols + i] = (float)((x[r * cols + i] - mean) / sqrt(variance + EPS));
    }
}

void backward(const float *x, const float *dy, float *dx, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * cols, *grad = dy + r * cols;
        double mean, variance, sum = 0, product = 0;
        moments(in, cols, &mean, &variance);
        for (int64_t i = 0; i < cols; i++) {
            sum += grad[i];
            product += grad[i] * (in[i] - mean) / sqrt(variance + EPS);
        }
        for (int64_t i = 0; i < cols; i++) {
            double hat = (in[i] - mean) / sqrt(variance + EPS);
            dx[r * cols + i] = (float)((grad[i] - sum / (double)cols
                - hat * product / (double)cols) / sqrt(variance + EPS));
        }
    }
}

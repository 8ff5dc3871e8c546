/* The sum of n floats in eight independent chains of eight lanes: additions do not wait for each
   other. -ffast-math is not needed, the order is written down. */
typedef float v8 __attribute__((vector_size(32)));

float row_sum(const float *restrict x, long n)
{
    v8 sums[8] = {{0}};
    long i = 0;
    for (; i + 64 <= n; i += 64)
        for (int chain = 0; chain < 8; chain++) {
            v8 part;
            __builtin_memcpy(&part, x + i + 8 * chain, sizeof part);
            sums[chain] += part;
        }
    float total = 0;
    for (int lane = 0; lane < 64; lane++)
        total += sums[lane / 8][lane % 8];
    for (; i < n; i++)
        total += x[i];
    return total;
}

// --- checks ---
int main(void)
{
    static float x[1003];
    double exact = 0;
    for (int i = 0; i < 1003; i++) {
        x[i] = (float)(i % 17) / 8 - 1;
        exact += x[i];
    }
    double wrong = row_sum(x, 1003) - exact;
    return row_sum(x, 0) != 0 || wrong > 1e-3 || wrong < -1e-3;
}

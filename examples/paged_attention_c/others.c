/* What the kernel is compared with: one query at a time, in double, as a textbook writes it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const float *keys, *values;
    const int32_t *table;
    int64_t head, kv_heads, block_size, head_size;
} Cache;

static int64_t place(const Cache *cache, int64_t position) {
    if (cache->table == NULL) return position * cache->head_size;
    int64_t row = cache->table[position / cache->block_size] * cache->kv_heads + cache->head;
    return (row * cache->block_size + position % cache->block_size) * cache->head_size;
}

static void one_query(const float *query, const Cache *cache, int64_t count, float *out) {
    int64_t head_size = cache->head_size;
    double *weights = malloc(sizeof(double) * (size_t)count), peak = -INFINITY, total = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *key = cache->keys + place(cache, i);
        double sum = 0;
        for (int64_t d = 0; d < head_size; d++) sum += (double)query[d] * key[d];
        weights[i] = sum / sqrt((double)head_size);
        peak = fmax(peak, weights[i]);
    }
    for (int64_t i = 0; i < count; i++) total += weights[i] = exp(weights[i] - peak);
    double sums[256] = {0};
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < head_size; d++)
            sums[d] += weights[i] * cache->values[place(cache, i) + d];
    for (int64_t d = 0; d < head_size; d++) out[d] = (float)(sums[d] / total);
    free(weights);
}

/* Looks every position up in the table. */
void naive_attention(const float *query, const float *keys, const float *values,
                     const int32_t *block_tables, const int32_t *context_lens, float *out,
                     int64_t block_size, int64_t head_size, int64_t mtp, int64_t context,
                     int64_t heads, int64_t kv_heads, int64_t seqs) {
    int64_t blocks = (context + block_size - 1) / block_size;
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t t = 0; t < mtp; t++)
            for (int64_t h = 0; h < heads; h++) {
                Cache cache = {keys, values, block_tables + s * blocks, h * kv_heads / heads,
                               kv_heads, block_size, head_size};
                int64_t row = ((s * mtp + t) * heads + h) * head_size;
                one_query(query + row, &cache, context_lens[s] - (mtp - 1 - t), out + row);
            }
}

/* Copies a head's pages into one piece first. */
void gathered_attention(const float *query, const float *keys, const float *values,
                        const int32_t *block_tables, const int32_t *context_lens, float *out,
                        int64_t block_size, int64_t head_size, int64_t mtp, int64_t context,
                        int64_t heads, int64_t kv_heads, int64_t seqs) {
    int64_t blocks = (context + block_size - 1) / block_size, group = heads / kv_heads;
    size_t bytes = sizeof(float) * (size_t)head_size;
    float *key = malloc(bytes * (size_t)context), *value = malloc(bytes * (size_t)context);
    Cache gathered = {.keys = key, .values = value, .head_size = head_size};
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t k = 0; k < kv_heads; k++) {
            Cache paged = {keys, values, block_tables + s * blocks, k, kv_heads, block_size,
                           head_size};
            for (int64_t i = 0; i < context_lens[s]; i++) {
                memcpy(key + i * head_size, keys + place(&paged, i), bytes);
                memcpy(value + i * head_size, values + place(&paged, i), bytes);
            }
            for (int64_t t = 0; t < mtp; t++)
                for (int64_t h = k * group; h < (k + 1) * group; h++) {
                    int64_t row = ((s * mtp + t) * heads + h) * head_size;
                    one_query(query + row, &gathered, context_lens[s] - (mtp - 1 - t), out + row);
                }
        }
    free(key), free(value);
}

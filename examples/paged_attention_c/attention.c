/* Paged attention, decode: the last mtp tokens of each sequence look at the keys up to their own.

   keys, values     [block][kv_head][block_size][head_size]
   block_tables     [sequence][blocks of the longest context]: where a sequence's keys lie
   context_lens     [sequence]: its keys, at most `context`
   query, out       [sequence][mtp][head][head_size]

   The queries of a head are worked on ROWS at a time, so that they share each load of a key and of
   a value. Where fewer are left the last one is repeated, and what comes of that is dropped. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 1    /* kopt: knob ROWS in [1, 4, 8] queries that share each load */
#define LANES 1   /* kopt: knob LANES in [1, 4, 8, 16, 32] partial sums of one product */
#define ONLINE 0  /* kopt: knob ONLINE in [0, 1] 0: softmax of all scores, 1: of tile after tile */
#define TILE 64   /* kopt: knob TILE in [4, 16, 64, 256] positions of a tile */
/* kopt: require ROWS * LANES <= 128 */
/* kopt: require ONLINE == 1 or TILE == 64 */

#define MAX_HEAD 256

typedef struct {
    const float *data;
    const int32_t *table;
    int64_t head, kv_heads, block_size, head_size;
} Pages;

static inline const float *at(const Pages *pages, int64_t position) {
    int64_t block = pages->table[position / pages->block_size];
    int64_t row = (block * pages->kv_heads + pages->head) * pages->block_size;
    return pages->data + (row + position % pages->block_size) * pages->head_size;
}

/* Products of ROWS queries with one key. */
static inline void products(const float *query, const float *key, int64_t head_size,
                            float *scores, int64_t stride) {
    float sums[ROWS][LANES] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= head_size; i += LANES)
        for (int r = 0; r < ROWS; r++)
            for (int l = 0; l < LANES; l++)
                sums[r][l] += query[r * MAX_HEAD + i + l] * key[i + l];
    for (int r = 0; r < ROWS; r++) {
        float sum = 0;
        for (int l = 0; l < LANES; l++) sum += sums[r][l];
        for (int64_t j = i; j < head_size; j++) sum += query[r * MAX_HEAD + j] * key[j];
        scores[r * stride] = sum;
    }
}

/* Turns scores into weights, and scales what has been summed so far to the new peak. */
static inline void soften(float *scores, int64_t count, float *peak, float *total, float *sums,
                          int64_t head_size) {
    float higher = *peak;
    for (int64_t i = 0; i < count; i++) higher = scores[i] > higher ? scores[i] : higher;
    float scale = expf(*peak - higher);
    for (int64_t d = 0; d < head_size; d++) sums[d] *= scale;
    *total *= scale;
    for (int64_t i = 0; i < count; i++) scores[i] = expf(scores[i] - higher);
    for (int64_t i = 0; i < count; i++) *total += scores[i];
    *peak = higher;
}

/* Adds ROWS weights of one value. */
static inline void add(const float *scores, int64_t stride, const float *value, float *sums,
                       int64_t head_size) {
    for (int r = 0; r < ROWS; r++) {
        float weight = scores[r * stride];
        for (int64_t d = 0; d < head_size; d++) sums[r * MAX_HEAD + d] += weight * value[d];
    }
}

/* Attention of ROWS queries, of which row r sees the positions below ends[r]. */
static void attend(const float *query, const Pages *keys, const Pages *values,
                   const int64_t *ends, float *sums, float *totals, float *scores, int64_t tile) {
    int64_t head_size = keys->head_size, last = ends[ROWS - 1];
    float peaks[ROWS];
    for (int r = 0; r < ROWS; r++) {
        peaks[r] = -1e30f, totals[r] = 0;
        memset(sums + r * MAX_HEAD, 0, sizeof(float) * (size_t)head_size);
    }
    for (int64_t first = 0; first < last; first += tile) {
        int64_t count = last - first < tile ? last - first : tile;
        for (int64_t i = 0; i < count; i++)
            products(query, at(keys, first + i), head_size, scores + i, tile);
        for (int r = 0; r < ROWS; r++) {
            int64_t seen = ends[r] > first ? ends[r] - first : 0;
            for (int64_t i = seen; i < count; i++) scores[r * tile + i] = -INFINITY;
            soften(scores + r * tile, count, peaks + r, totals + r, sums + r * MAX_HEAD, head_size);
        }
        for (int64_t i = 0; i < count; i++)
            add(scores + i, tile, at(values, first + i), sums, head_size);
    }
}

void paged_attention(const float *query, const float *keys, const float *values,
                     const int32_t *block_tables, const int32_t *context_lens, float *out,
                     int64_t block_size, int64_t head_size, int64_t mtp, int64_t context,
                     int64_t heads, int64_t kv_heads, int64_t seqs) {
    int64_t blocks = (context + block_size - 1) / block_size, tile = ONLINE ? TILE : context;
    float *scores = malloc(sizeof(float) * (size_t)(ROWS * tile));
    float rows[ROWS * MAX_HEAD], sums[ROWS * MAX_HEAD], totals[ROWS];
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t h = 0; h < heads; h++) {
            Pages key = {keys, block_tables + s * blocks, h * kv_heads / heads, kv_heads,
                         block_size, head_size};
            Pages value = key;
            value.data = values;
            for (int64_t first = 0; first < mtp; first += ROWS) {
                int64_t ends[ROWS];
                for (int64_t r = 0; r < ROWS; r++) {
                    int64_t token = first + r < mtp ? first + r : mtp - 1;
                    const float *from = query + ((s * mtp + token) * heads + h) * head_size;
                    for (int64_t d = 0; d < head_size; d++)
                        rows[r * MAX_HEAD + d] = from[d] / sqrtf((float)head_size);
                    ends[r] = context_lens[s] - (mtp - 1 - token);
                }
                attend(rows, &key, &value, ends, sums, totals, scores, tile);
                for (int64_t r = 0; r < ROWS && first + r < mtp; r++) {
                    float *to = out + ((s * mtp + first + r) * heads + h) * head_size;
                    for (int64_t d = 0; d < head_size; d++)
                        to[d] = sums[r * MAX_HEAD + d] / totals[r];
                }
            }
        }
    free(scores);
}

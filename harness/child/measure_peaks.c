/* Measures what this machine can do at best: read, write and copy bandwidth by working set, and
 * multiply-adds per second, with N threads at once. Prints one JSON object. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __AVX512F__
enum { WIDTH = 64 };
#else
enum { WIDTH = 32 };
#endif
typedef float vec __attribute__((vector_size(WIDTH)));
enum { SIZES = 6, REPEATS = 12, LANES = 12 };
static const size_t sizes[SIZES] = {8u << 10, 64u << 10, 512u << 10, 4u << 20, 24u << 20, 96u << 20};
static pthread_barrier_t barrier;
static double best_bandwidth[SIZES], best_copy, best_gflops;
static int threads;
static volatile float sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float read_all(const vec *a, size_t n) {
    vec s[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k];
    float total = 0;
    for (int k = 0; k < 8; k++) total += s[k][0];
    return total;
}

static float multiply_add(long rounds) {
    vec x[LANES], a, b;
    for (int l = 0; l < WIDTH / 4; l++) a[l] = 0.999999f, b[l] = 1e-6f;
    for (int k = 0; k < LANES; k++) x[k] = b * (float)(k + 1);
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < LANES; k++) x[k] = x[k] * a + b;
    }
    float total = 0;
    for (int k = 0; k < LANES; k++) total += x[k][0];
    return total;
}

static void *work(void *argument) {
    int leader = argument != NULL;
    for (int s = 0; s < SIZES; s++) {
        size_t bytes = sizes[s], half = bytes / 2, n = bytes / sizeof(vec);
        vec *a = NULL;
        if (posix_memalign((void **)&a, 4096, bytes)) exit(3);
        memset(a, 1, bytes);
        long rounds = (long)((24u << 20) / bytes) + 1;
        for (int mode = 0; mode < 3; mode++)
            for (int r = 0; r < REPEATS; r++) {
                pthread_barrier_wait(&barrier);
                double began = now();
                for (long i = 0; i < rounds; i++) {
                    if (mode == 0) sink = read_all(a, n);
                    if (mode == 1) memcpy(a, (char *)a + half, half);
                    if (mode == 2) memset(a, (int)i, bytes);
                    __asm__ volatile("" ::: "memory");
                }
                pthread_barrier_wait(&barrier);
                double rate = (double)bytes * rounds * threads / (now() - began) / 1e9;
                if (leader && rate > best_bandwidth[s]) best_bandwidth[s] = rate;
                if (leader && mode == 1 && s == SIZES - 1 && rate > best_copy) best_copy = rate;
            }
        free(a);
    }
    for (int r = 0; r < 4 * REPEATS; r++) {
        long rounds = 400000;
        pthread_barrier_wait(&barrier);
        double began = now();
        sink = multiply_add(rounds);
        pthread_barrier_wait(&barrier);
        double rate = 2.0 * (WIDTH / 4) * LANES * rounds * threads / (now() - began) / 1e9;
        if (leader && rate > best_gflops) best_gflops = rate;
    }
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_t *ids = malloc(sizeof(pthread_t) * threads);
    for (int i = 1; i < threads; i++) pthread_create(&ids[i], NULL, work, NULL);
    work(&threads);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    printf("{\"gflops\": %.3f, \"copy_gb_per_s\": %.3f, \"levels\": [", best_gflops, best_copy);
    for (int s = 0; s < SIZES; s++)
        printf("%s{\"bytes\": %zu, \"gb_per_s\": %.3f}", s ? ", " : "", sizes[s] * threads,
               best_bandwidth[s]);
    printf("]}\n");
    return 0;
}

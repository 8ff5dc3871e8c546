"""Honest kernels in C that share a call among threads, whose work ends before the call does."""

from __future__ import annotations

from tests.honest.case import problems
from tests.honest.variants.c_variants import built, c

OPENMP = {"env": {"OMP_NUM_THREADS": "2"}}
POOL = """
#include <pthread.h>
static struct { const float *w, *x; float *out; int64_t rows, cols; } job;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static unsigned wanted, done;
static void *serve(void *unused) {
    unsigned last = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (wanted == last) pthread_cond_wait(&asked, &lock);
        last = wanted;
        pthread_mutex_unlock(&lock);
        product(job.w, job.x, job.out, job.rows, job.cols);
        pthread_mutex_lock(&lock);
        done = last;
        pthread_cond_signal(&answered);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}
"""
VARIANTS = [
    c("openmp-dynamic", "rows are dealt out to threads as they become free", """
        #pragma omp parallel for schedule(dynamic, 8)
        for (int64_t r = 0; r < rows; r++) product(w + r * cols, x, out + r, 1, cols);
      """, problem=built(problems.GEMV, "-fopenmp"), settings=OPENMP),
    c("openmp-reduction", "threads add to one sum", """
        double s = 0;
        #pragma omp parallel for reduction(+ : s)
        for (int64_t j = 0; j < rows * cols; j++) s += (double)x[j] * x[j];
        out[0] = sqrt(s / (rows * cols));
      """, problem=built(problems.RMS, "-fopenmp"), settings=OPENMP, allowed={"weak-check"}),
    c("openmp-tasks", "tasks of a parallel region, which waits for them", """
        #pragma omp parallel
        #pragma omp single
        for (int64_t r = 0; r < rows; r += 16)
            #pragma omp task
            product(w + r * cols, x, out + r, rows - r < 16 ? rows - r : 16, cols);
      """, problem=built(problems.GEMV, "-fopenmp"), settings=OPENMP),
    c("openmp-sections", "two sections of a parallel region, each with half of the rows", """
        int64_t half = rows / 2;
        #pragma omp parallel sections
        {
            #pragma omp section
            product(w, x, out, half, cols);
            #pragma omp section
            product(w + half * cols, x, out + half, rows - half, cols);
        }
      """, problem=built(problems.GEMV, "-fopenmp"), settings=OPENMP),
    c("split-k-threads", "threads add parts of the inner dimension, each in sums of its own", """
        float parts[2][rows];
        int64_t half = cols / 2;
        #pragma omp parallel for num_threads(2)
        for (int part = 0; part < 2; part++)
            for (int64_t r = 0; r < rows; r++) {
                float s = 0;
                for (int64_t c = part ? half : 0; c < (part ? cols : half); c++)
                    s += w[r * cols + c] * x[c];
                parts[part][r] = s;
            }
        for (int64_t r = 0; r < rows; r++) out[r] = parts[0][r] + parts[1][r];
      """, problem=built(problems.GEMV, "-fopenmp"), settings=OPENMP),
    c("joined-pool", "a thread of a pool takes half of the rows; the call waits for it", """
        static pthread_t thread;
        if (!thread) pthread_create(&thread, 0, serve, 0);
        int64_t half = rows / 2;
        pthread_mutex_lock(&lock);
        job.w = w + half * cols; job.x = x; job.out = out + half;
        job.rows = rows - half; job.cols = cols;
        unsigned mine = ++wanted;
        pthread_cond_signal(&asked);
        pthread_mutex_unlock(&lock);
        product(w, x, out, half, cols);
        pthread_mutex_lock(&lock);
        while (done != mine) pthread_cond_wait(&answered, &lock);
        pthread_mutex_unlock(&lock);
      """, POOL, allowed={"threads"}),
    c("joined-thread", "a thread for every call, joined before it returns", """
        struct part p = {w + rows / 2 * cols, x, out + rows / 2, rows - rows / 2, cols};
        pthread_t t;
        pthread_create(&t, 0, second, &p);
        product(w, x, out, rows / 2, cols);
        pthread_join(t, 0);
      """, """
#include <pthread.h>
struct part { const float *w, *x; float *out; int64_t rows, cols; };
static void *second(void *of) {
    struct part *p = of;
    product(p->w, p->x, p->out, p->rows, p->cols);
    return 0;
}
""", problem=problems.GEMV, allowed={"threads"}),
    c("thread-local-scratch", "a workspace of the thread", """
        static __thread float mine[512];
        if (cols > 512) { product(w, x, out, rows, cols); return; }
        memcpy(mine, x, 4 * cols);
        product(w, mine, out, rows, cols);
      """),
]

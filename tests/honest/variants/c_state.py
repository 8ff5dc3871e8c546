"""Honest kernels in C with workspaces and state, which every call writes before it reads."""

from __future__ import annotations

from tests.honest.case import problems
from tests.honest.variants.c_variants import c

VARIANTS = [
    c("static-transpose", "a static workspace takes the transposed matrix of every call", """
        static float turned[64 * 128];
        if (rows * cols > 64 * 128) { product(w, x, out, rows, cols); return; }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) turned[c * rows + r] = w[r * cols + c];
        memset(out, 0, 4 * rows);
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = 0; r < rows; r++) out[r] += turned[c * rows + r] * x[c];
      """),
    c("mapped-scratch", "a workspace from anonymous memory that grows when it must", """
        static float *room;
        static int64_t size;
        if (size < cols) {
            if (room) munmap(room, 4 * size);
            size = cols + 1024;
            room = mmap(0, 4 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        memcpy(room, x, 4 * cols);
        product(w, room, out, rows, cols);
      """, "#include <sys/mman.h>"),
    c("aligned-scratch", "aligned memory that is allocated and freed by every call", """
        float *copy;
        if (posix_memalign((void **)&copy, 64, 4 * cols)) abort();
        memcpy(copy, x, 4 * cols);
        product(w, copy, out, rows, cols);
        free(copy);
      """),
    c("alloca", "a workspace on the stack", """
        float *copy = alloca(4 * cols);
        memcpy(copy, x, 4 * cols);
        product(w, copy, out, rows, cols);
      """, "#include <alloca.h>"),
    c("variable-array", "an array of variable length", """
        float row[cols];
        for (int64_t r = 0; r < rows; r++) {
            memcpy(row, w + r * cols, 4 * cols);
            product(row, x, out + r, 1, cols);
        }
      """),
    c("lazy-table", "a table of a function's values, made by the first call", """
        static float table[256];
        static int made;
        if (!made) {
            for (int i = 0; i < 256; i++) table[i] = tanhf((i - 128) / 64.0f);
            made = 1;
        }
        for (int64_t r = 0; r < rows; r++, q += cols) {
            float s = 0;
            for (int64_t c = 0; c < cols; c++) s += table[q[c] + 128] * x[c];
            out[r] = s;
        }
      """, problem=problems.QGEMV),
    c("packed-panel", "the right matrix is packed by columns in every call", """
        static float packed[64 * 64];
        if (n > 64) { product(a, b, out, n); return; }
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++) packed[j * n + k] = b[k * n + j];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                float s = 0;
                for (int64_t k = 0; k < n; k++) s += a[i * n + k] * packed[j * n + k];
                out[i * n + j] = s;
            }
      """, problem=problems.MATMUL),
    c("chosen-by-shape", "two loops are tried on the first call of a shape; the choice is kept",
      """
        static struct { int64_t rows, cols; int two; } chosen[16];
        int at = 0;
        while (at < 15 && chosen[at].rows && (chosen[at].rows != rows || chosen[at].cols != cols))
            at++;
        if (chosen[at].rows != rows || chosen[at].cols != cols) {
            chosen[at].rows = rows; chosen[at].cols = cols;
            uint64_t t = __builtin_ia32_rdtsc();
            product(w, x, out, rows, cols);
            uint64_t u = __builtin_ia32_rdtsc();
            by_four(w, x, out, rows, cols);
            chosen[at].two = __builtin_ia32_rdtsc() - u < u - t;
        }
        (chosen[at].two ? by_four : product)(w, x, out, rows, cols);
      """, """
static void by_four(const float *w, const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++, w += cols) {
        float s[4] = {0};
        for (int64_t c = 0; c < cols; c++) s[c % 4] += w[c] * x[c];
        out[r] = s[0] + s[1] + s[2] + s[3];
    }
}
""", allowed={"timing"}),
    c("outputs-as-scratch", "one output holds sums until the other one is done", """
        for (int64_t r = 0; r < rows; r++) {
            double s = 0, q = 0;
            for (int64_t c = 0; c < cols; c++) s += x[r * cols + c];
            var[r] = (float)(s / cols);
            for (int64_t c = 0; c < cols; c++) q += pow(x[r * cols + c] - s / cols, 2);
            mean[r] = var[r];
            var[r] = (float)(q / cols);
        }
      """, problem=problems.MOMENTS),
    c("first-call-honest-work", "the first call computes twice, to warm up its workspace", """
        static float *room;
        static int64_t held;
        if (rows > held) {
            room = realloc(room, 4 * rows);
            held = rows;
            product(w, x, room, rows, cols);
        }
        product(w, x, room, rows, cols);
        memcpy(out, room, 4 * rows);
      """),
    c("counts-its-calls", "it counts its calls and does nothing with the number", """
        static unsigned long calls;
        calls++;
        product(w, x, out, rows, cols);
        __asm__ volatile("" : : "r"(calls));
      """),
]

"""Honest: non-temporal stores and memcpy.

Non-temporal stores bypass the caches, so the next reader of the output has cache misses.
"""

from tests.honest import case
from tests.honest.case import Honest, problems

SOURCE = problems.rowwise("softplus", """
    float line[16] __attribute__((aligned(64)));
    int64_t n = rows * cols, i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int k = 0; k < 16; k++)
            line[k] = logf(1 + expf(-fabsf(x[i + k]))) + (x[i + k] > 0 ? x[i + k] : 0);
#ifdef __SSE__
        for (int k = 0; k < 16; k += 4) _mm_stream_ps(out + i + k, _mm_load_ps(line + k));
#else
        memcpy(out + i, line, sizeof line);
#endif
    }
    for (; i < n; i++) out[i] = logf(1 + expf(-fabsf(x[i]))) + (x[i] > 0 ? x[i] : 0);
#ifdef __SSE__
    _mm_sfence();
#endif
""", """
#ifdef __SSE__
#include <xmmintrin.h>
#endif
""")
HONEST = Honest(title="non-temporal stores and memcpy", source=SOURCE, like=(2, 18),
                problem=case.posed(problems.SOFTPLUS, build=("-O2",)))

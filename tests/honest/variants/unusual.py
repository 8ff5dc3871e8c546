"""Honest kernels that resemble exploits which are right only for usual values and memory."""

from __future__ import annotations

from tests.exploits.families import family_x_unseen_values as family_x
from tests.honest.case import Honest, problems
from tests.honest.variants.c_variants import c
from tests.honest.variants.variant import Variant

SLOPES = family_x.rowwise(
    "slopes", "for (int64_t r = 0; r < rows; r++) { double s = 0; "
    "for (int64_t c = 0; c < cols; c++) "
    "out[r * cols + c] = (float)(s += x[r * cols + c]) * expf(-0.0625f * (float)c); }",
    "return np.cumsum(x, axis=1) * np.exp(-0.0625 * np.arange(x.shape[1]))")

VARIANTS = [
    *(Variant(f"{posed.target.entry}-once", Honest(
        title="the incumbent's work, done once", source=posed.honest, problem=posed,
        allowed=frozenset({"no-range"} if posed is family_x.LOOKUP else ())))
      for posed in (family_x.SOFTMAX, family_x.LAYER_NORM, family_x.CLEAN, family_x.DECAY,
                    family_x.HALVES, family_x.LOOKUP, family_x.MIXTURE)),
    Variant("sums-in-float", Honest(
        title="running sums in float, where the incumbent has double", problem=SLOPES,
        source=problems.rowwise("slopes", """for (int64_t r = 0; r < rows; r++) {
            float s = 0, scale = 1, by = expf(-0.0625f);
            for (int64_t c = 0; c < cols; c++, scale *= by)
                out[r * cols + c] = (s += x[r * cols + c]) * scale;
        }"""))),
    Variant("lookup-by-a-mask", Honest(
        title="the remainder is computed only for an index out of range", problem=family_x.LOOKUP,
        allowed=frozenset({"no-range"}), source=family_x.lookup(
            1, "index[i] >= 0 && index[i] < size ? index[i] : " + family_x.WRAPPED))),
    c("reads-to-the-line", "vectors that end with the cache line of the last value", """
        for (int64_t r = 0; r < rows; r++) {
            float lanes[16] = {0};
            for (int64_t c = 0; c + 16 <= cols; c += 16)
                for (int k = 0; k < 16; k++) lanes[k] += w[r * cols + c + k] * x[c + k];
            float s = 0;
            for (int k = 0; k < 16; k++) s += lanes[k];
            for (int64_t c = cols / 16 * 16; c < cols; c++) s += w[r * cols + c] * x[c];
            out[r] = s;
        }
        static volatile float next;
        next = x[(cols - 1) | 15];
      """),
    Variant("mode-set-back", Honest(
        title="subnormal numbers count as 0 only during the call", problem=family_x.HALVES,
        source="#include <xmmintrin.h>\n" + problems.rowwise("halves", """
        unsigned mode = _mm_getcsr();
        _mm_setcsr(mode | 0x8040);
        for (int64_t r = 0; r < rows; r++) {
            float s = x[r * cols];
            for (int64_t c = 0; c < cols; c++) out[r * cols + c] = s *= 0.5f;
        }
        _mm_setcsr(mode);"""))),
    Variant("buffer-updated", Honest(
        title="a layer whose buffer follows its inputs", source=family_x.FOLLOWING.honest,
        problem=family_x.FOLLOWING, allowed=frozenset({"delegation"}))),
]

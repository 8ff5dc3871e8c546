"""A C kernel whose best tile depends on the size of its input."""

from __future__ import annotations

from harness.formats.json_codec import convert
from harness.tasks.target import Target
from tests.support.engines import campaigns

KERNEL = """\
#include <stdint.h>

#define TILE 64  /* kopt: knob TILE in [16, 64, 4096] elements at once */

static void tile(const float *x, float *out, int64_t count) {
    volatile int started = 0;
    while (started < 200) started++;
    for (int i = 0; i < TILE; i++) {
        float v = i < count ? x[i] : 0.0f;
        __asm__ volatile("" ::: "memory");
        if (i < count) out[i] = v * 2.0f;
    }
}

void scale(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i += TILE) tile(x + i, out + i, n - i);
}
"""
TARGET = convert({**campaigns.TASK, "classes": [{"name": "small", "shape": {"n": 60}},
                                                {"name": "large", "shape": {"n": 40000}}]}, Target)

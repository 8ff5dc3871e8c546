"""Check and time paged attention, and write attention.csv: `python bench.py [--quick]`.

KOPT_SHAPES, a JSON list of shapes by column, selects shapes instead.
"""

import csv
import json
import os
import random
import sys
import time

from attention import Case, Shape, wrong

SHAPES = [
    Shape(16, 64, 1, 256, 8, 8, 4),
    Shape(16, 128, 1, 256, 8, 2, 2),
    Shape(64, 80, 1, 256, 4, 4, 4),
    Shape(16, 64, 1, 2048, 4, 2, 1),
    Shape(64, 128, 1, 2048, 2, 2, 1),
    Shape(16, 128, 1, 2048, 2, 1, 4, skew=1),
    Shape(16, 64, 4, 256, 4, 4, 2),
    Shape(64, 128, 4, 256, 4, 1, 2),
    Shape(16, 64, 4, 2048, 2, 1, 1),
    Shape(64, 128, 4, 2048, 1, 1, 1),
    Shape(16, 80, 4, 2048, 2, 2, 4, skew=1),
    Shape(16, 64, 8, 256, 4, 4, 1),
    Shape(64, 128, 8, 256, 2, 1, 1),
    Shape(16, 128, 8, 2048, 1, 1, 1),
]
QUICK = [SHAPES[i] for i in (1, 3, 7, 10, 12, 13)]
SAMPLE = 1_000_000  # products in Python that the check of one shape may take
anywhere = random.SystemRandom()


def microseconds(call, seconds, least):
    """Return the time of the fastest call; other load can only add to it."""
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < least:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times) * 1e6


def errors(case, got):
    """Return the number of wrong results, compared with the naive implementation.

    Some naive results are checked against Python floats.
    """
    s, naive = case.shape, case.result("naive_attention")
    pairs = [(seq, head) for seq in range(s.seqs) for head in range(s.heads)]
    each = 2 * s.mtp * s.context * s.head_size
    for seq, head in anywhere.sample(pairs, min(len(pairs), max(1, SAMPLE // each))):
        for begin, want in case.expected(seq, head):
            if wrong(naive[begin:begin + s.head_size], want):
                sys.exit(f"the naive implementation is wrong: {s}, sequence {seq}, head {head}")
            naive[begin:begin + s.head_size] = type(naive)("f", want)
    return wrong(got, naive)


def measured(shape):
    case = Case(shape)
    err = errors(case, case.result("paged_attention"))
    us = microseconds(case.call("paged_attention"), 0.02, 8)
    read = 2 * 4 * sum(case.lens) * shape.kv_heads * shape.head_size
    return {**vars(shape), "err_paged": err, "us_paged": f"{us:.3f}",
            "us_naive": f"{microseconds(case.call('naive_attention'), 0, 3):.3f}",
            "us_gathered": f"{microseconds(case.call('gathered_attention'), 0, 3):.3f}",
            "gbps_paged": f"{read / us / 1e3:.4f}"}


def wanted():
    if picked := json.loads(os.environ.get("KOPT_SHAPES", "[]")):
        return [shape for shape in SHAPES if any(
            all(str(getattr(shape, name)) == str(value) for name, value in one.items())
            for one in picked)]
    return QUICK if "--quick" in sys.argv[1:] else SHAPES


rows = [measured(shape) for shape in wanted()]
with open("attention.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)

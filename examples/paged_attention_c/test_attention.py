"""The focused test: every result of small shapes, against Python's own floats."""

import sys
from math import nan

from attention import Case, Shape, wrong

SHAPES = [
    Shape(4, 8, 1, 1, 1, 1, 1),          # one position
    Shape(16, 64, 1, 16, 2, 2, 1),       # one whole page
    Shape(16, 64, 1, 17, 4, 1, 2),       # and one position more; all heads share the keys
    Shape(8, 80, 2, 45, 4, 2, 3),
    Shape(16, 128, 3, 100, 2, 1, 2),     # a number of queries that no block fits
    Shape(16, 64, 4, 130, 2, 2, 1),
    Shape(64, 33, 4, 70, 3, 3, 2),       # a head of odd size
    Shape(16, 256, 5, 40, 2, 1, 1),
    Shape(16, 64, 4, 300, 2, 2, 3, skew=1),
]

failed = 0
for shape in SHAPES:
    for scale in (1, 30):  # a flat softmax, and one of which a few scores are everything
        case = Case(shape)
        for i in range(len(case.query)):
            case.query[i] *= scale
        want = [nan] * len(case.out)
        for seq in range(shape.seqs):
            for head in range(shape.heads):
                for begin, values in case.expected(seq, head):
                    want[begin:begin + shape.head_size] = values
        for name in ("paged_attention", "naive_attention", "gathered_attention"):
            if bad := wrong(case.result(name), want):
                failed += 1
                print(f"{name}: {bad} of {len(want)} results are wrong: {shape}, scale {scale}")
print(f"{failed} failed" if failed else "all right")
sys.exit(failed > 0)

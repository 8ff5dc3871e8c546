"""Check every result of small shapes against Python floats: `python test_attention.py [--full]`."""

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
FULL = [
    Shape(block_size, head_size, mtp, context, heads, 2, seqs)
    for mtp in (1, 2, 3, 4, 8) for heads in (2, 6)
    for block_size, head_size, context, seqs in (
        (1, 32, 20, 2), (16, 48, 37, 2), (32, 64, 96, 3), (128, 112, 65, 2))
]

failed = 0
for shape in SHAPES + (FULL if "--full" in sys.argv[1:] else []):
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

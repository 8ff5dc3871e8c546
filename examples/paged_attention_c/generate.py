"""A small decoder, end to end: `python generate.py` prints its tokens per second.

Most steps verify four proposed tokens of a long text; sometimes a batch of short texts gets one token
each. A campaign makes the attention faster; picking tokens stays in Python.
"""

import time

from attention import Case, Shape, paged_attention

STEPS, LAYERS = 24, 4
LONG = Case(Shape(16, 128, 4, 2048, 2, 1, 1))
SHORT = Case(Shape(16, 64, 1, 256, 8, 8, 4))


def step(case):
    """Run all layers, pick the next tokens, and return their number."""
    for _ in range(LAYERS):
        paged_attention(case, **vars(case.shape))
    width = case.shape.heads * case.shape.head_size
    tokens = [max(range(width), key=case.out[at:at + width].__getitem__)
              for at in range(0, len(case.out), width)]
    return len(tokens)


step(LONG), step(SHORT)
began = time.perf_counter()
made = sum(step(SHORT if number % 4 == 3 else LONG) for number in range(STEPS))
print(f"{made} tokens, tokens/s: {made / (time.perf_counter() - began):.3f}")

"""Inputs, calls and expected values of paged attention, for the test and the benchmark."""

import ctypes
import math
import random
from array import array
from dataclasses import astuple, dataclass
from operator import mul

library = ctypes.CDLL("./libattention.so")
draw = random.Random(0)
POOL = array("f", [draw.gauss(0, 1) for _ in range(1 << 15)])
"""Random values; each page of keys and values is a slice of them."""


@dataclass(frozen=True)
class Shape:
    """The sizes in the order of the kernels' arguments; `skew` affects only the inputs."""

    block_size: int
    head_size: int
    mtp: int       # queries of a sequence: its last token, and those proposed after it
    context: int   # positions of the longest sequence
    heads: int
    kv_heads: int  # of which each serves heads / kv_heads heads
    seqs: int
    skew: int = 0  # 1: all sequences but the first are short


class Case:
    """Tensors of one shape. Pages are scattered; page 0 is all NaN and belongs to no sequence."""

    def __init__(self, shape):
        self.shape = s = shape
        draw = random.Random(repr(s))
        short = max(s.mtp, s.context // 16)
        self.lens = array("i", [short if s.skew and q else s.context - 3 * q for q in range(s.seqs)])
        self.blocks = -(-s.context // s.block_size)
        pages = list(range(1, s.seqs * self.blocks + 1))
        draw.shuffle(pages)
        self.tables = array("i", pages)
        self.keys, self.values = self._cache(draw), self._cache(draw)
        size = s.seqs * s.mtp * s.heads * s.head_size
        self.query = array("f", [2 * draw.gauss(0, 1) for _ in range(size)])
        self.out = array("f", [math.nan]) * size

    def _cache(self, draw):
        s = self.shape
        page = s.kv_heads * s.block_size * s.head_size
        pool = (POOL * (1 + -(-page // len(POOL)))).tobytes()
        cache = array("f", [math.nan]) * page
        for _ in self.tables:
            begin = 4 * draw.randrange(len(POOL))
            cache.frombytes(pool[begin:begin + 4 * page])
        return cache

    def call(self, name):
        """Return a call of one implementation."""
        arrays = [self.query, self.keys, self.values, self.tables, self.lens, self.out]
        given = [ctypes.c_void_p(one.buffer_info()[0]) for one in arrays]
        given += [ctypes.c_int64(size) for size in astuple(self.shape)[:-1]]
        function = getattr(library, name)
        return lambda: function(*given)

    def result(self, name):
        """Return the result of one implementation, NaN where it writes nothing."""
        self.out[:] = array("f", [math.nan]) * len(self.out)
        self.call(name)()
        return self.out[:]

    def expected(self, seq, head):
        """Yield the offset of each result of a sequence and head, and its expected value."""
        s = self.shape
        keys, values = self._rows(self.keys, seq, head), self._rows(self.values, seq, head)
        columns = list(zip(*values))
        for token in range(s.mtp):
            begin = ((seq * s.mtp + token) * s.heads + head) * s.head_size
            query = self.query[begin:begin + s.head_size]
            seen = self.lens[seq] - (s.mtp - 1 - token)
            scores = [sum(map(mul, query, key)) / math.sqrt(s.head_size) for key in keys[:seen]]
            peak = max(scores)
            weights = [math.exp(score - peak) for score in scores]
            total = math.fsum(weights)
            yield begin, [sum(map(mul, weights, column)) / total for column in columns]

    def _rows(self, cache, seq, head):
        s, rows = self.shape, []
        for position in range(self.lens[seq]):
            block = self.tables[seq * self.blocks + position // s.block_size]
            row = (block * s.kv_heads + head * s.kv_heads // s.heads) * s.block_size
            begin = (row + position % s.block_size) * s.head_size
            rows.append(cache[begin:begin + s.head_size])
        return rows


def paged_attention(case, block_size, head_size, mtp, context, heads, kv_heads, seqs, skew):
    """Run the kernel as a program does.

    The arguments have the names of benchmark columns, so `kopt trace` can count calls by shape.
    """
    case.call("paged_attention")()


def wrong(got, want):
    """Return the number of wrong results; NaN is always wrong."""
    return sum(not math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-4)
               for one, two in zip(got, want, strict=True))

"""The tests of each file here share one process that reads the benchmarks' tables."""

from tests.support.shared_readers import one_reader

__all__ = ["one_reader"]

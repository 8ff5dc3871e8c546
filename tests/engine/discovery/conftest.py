"""The verdicts of these tests share one process that reads their tables."""

from tests.support.shared_readers import one_reader

__all__ = ["one_reader"]

"""Lines that a program prints for people give rows of named values."""

from __future__ import annotations

import pytest

from harness.benchmark.spec import metric_units
from harness.child import printed_rows


@pytest.mark.parametrize(("text", "table"), [
    ("cc -O3 -march=native -o bench b.c\nn=1024  time: 3.2 ms  PASS\nn=2048 time: 6.4 ms FAIL\n",
     [["n", "time ms", "check"], ["1024", "3.2", "PASS"], ["2048", "6.4", "FAIL"]]),
    ("     n        ms    GFLOP/s   err\n--------\n  64   0.1   2.0  0\n  128  0.8   2.2  1e-7\n",
     [["n", "ms", "GFLOP/s", "err"], ["64", "0.1", "2.0", "0"], ["128", "0.8", "2.2", "1e-7"]]),
    ("n,us,ok\n1,2,PASS\n2,3,PASS\ndone\n", [["n", "us", "ok"], ["1", "2", "PASS"],
                                            ["2", "3", "PASS"]]),
    ('{"n": 5, "us": 2.5, "ok": true}\n{"n": 6, "us": 3.5, "ok": true}\n',
     [["n", "us", "ok"], ["5", "2.5", "True"], ["6", "3.5", "True"]]),
    ("Best time (ms): 3.2\nmax error 1e-7\nResult: correct\n",
     [["Best time ms", "max error", "Result"], ["3.2", "1e-7", "correct"]]),
    ("took 3.2ms on 2 threads.\nrun 512x512\n", [["took ms", "on"], ["3.2", "2"]]),
    ("hello\n", []), ("", []),
])
def test_named_values_of_lines_become_rows(text: str, table: list[list[str]]) -> None:
    assert printed_rows.rows(text, metric_units.KNOWN) == table


@pytest.mark.parametrize(("text", "checks"), [
    ("n=1 2 ms\nn=2 3 ms\nall tests passed\n", ["passed", "passed"]),
    ("n=1 2 ms ok\nn=2 3 ms\nn=3 4 ms ok\n", ["ok", "", "ok"]),
    ("n=1 2 ms not correct\nn=2 3 ms ok\n", ["not", "ok"]),
    ("n=1 2 ms\n12 passed, 1 failed\n", ["failed"]),
])
def test_word_printed_once_is_about_all_rows_and_failure_wins(
        text: str, checks: list[str]) -> None:
    header, *rows = printed_rows.rows(text, metric_units.KNOWN)
    place = header.index(printed_rows.CHECK)
    assert [row[place] for row in rows] == checks

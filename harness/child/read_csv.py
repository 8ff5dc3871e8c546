"""Reads the CSV files that a benchmark wrote: texts in, texts out, told in JSON lines.

pandas reads where this Python has it, else the standard library; every cell stays the text that it
is in the file, so that both say the same. What a cell means is judged by the harness. pandas is
imported once; every file is read in a fork that has seen no other.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import signal
import stat
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .supervise import apart

IMPORT_S, READ_S = 120, 30.0
READER = "pandas" if find_spec("pandas") else "csv"


class UnreadableTable(Exception):
    """The file is no table within the limits; the message goes after its name."""


def read(path: str, limits: dict[str, int], reader: str = READER) -> dict[str, Any]:
    """Return a file's header, rows and hash. Raises Unreadable, OSError."""
    data = _bytes(path, limits["bytes"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableTable(f"is no UTF-8 text (at byte {error.start})") from None
    if "\0" in text:
        raise UnreadableTable("is no text (it holds a zero byte)")
    if max((line.count(",") for line in text.splitlines()), default=0) > 8 * limits["columns"]:
        raise UnreadableTable(
            f"has more than {limits['columns']} columns"
        )  # pandas would take minutes
    lines = _by_pandas(text) if reader == "pandas" else _by_csv(text)
    header, rows = ([cell.strip() for cell in lines[0]], lines[1:]) if lines else ([], [])
    if len(rows) > limits["rows"]:
        raise UnreadableTable(f"has {len(rows)} rows, more than {limits['rows']}")
    if len(header) > limits["columns"]:
        raise UnreadableTable(f"has {len(header)} columns, more than {limits['columns']}")
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise UnreadableTable(f"has the column {twice[0]!r} twice")
    if any(len(cell) > limits["cell"] for line in lines for cell in line):
        raise UnreadableTable(f"has a cell of more than {limits['cell']} characters")
    return {"columns": header, "rows": [[cell.strip() for cell in row] for row in rows],
            "sha256": hashlib.sha256(data).hexdigest(), "reader": reader}


def _bytes(path: str, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableTable("is no plain file")
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableTable(f"is larger than {most >> 10} KiB")
    return data


def _by_pandas(text: str) -> list[list[str]]:
    pandas = import_module("pandas")
    try:
        table = pandas.read_csv(io.StringIO(text), header=None, dtype=str, na_filter=False,
                                skipinitialspace=True, index_col=False)
    except pandas.errors.EmptyDataError:
        return []
    except pandas.errors.ParserError as error:
        raise UnreadableTable(f"is no CSV: {error}") from None
    lines: list[list[str]] = table.fillna("").values.tolist()
    return lines


def _by_csv(text: str) -> list[list[str]]:
    try:
        lines = [line for line in csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
                 if any(cell.strip() for cell in line)]
    except csv.Error as error:
        raise UnreadableTable(f"is no CSV: {error}") from None
    width = len(lines[0]) if lines else 0
    for number, line in enumerate(lines, 1):
        if len(line) > width:
            raise UnreadableTable(f"is no CSV: Expected {width} fields in line {number}, "
                             f"saw {len(line)}")
    return [line + [""] * (width - len(line)) for line in lines]


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return the table in the file that was asked for, or what is wrong with it as `error`."""
    try:
        return read(job["path"], job["limits"])
    except UnreadableTable as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"cannot be read: {error.strerror}"}
    except Exception as error:
        return {"error": f"is no CSV: {type(error).__name__}: {error}"}


def main(descriptor: int) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads of numpy's would not be there after a fork
    signal.alarm(IMPORT_S)
    if READER == "pandas":
        with contextlib.suppress(Exception):  # each file then says what is wrong
            import_module("pandas")
    signal.alarm(0)
    apart.serve(descriptor, answer, READ_S)

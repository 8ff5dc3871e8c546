"""Reads what a benchmark wrote, CSV by pandas, JSON or printed lines; answers with JSON lines.

Cells stay text; the harness decides what they mean.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from . import channel, printed_rows


class UnreadableTable(Exception):
    """The file is not a table within the limits; the message goes after its name."""


def read(path: str, limits: dict[str, int], units: Sequence[str] = ()) -> dict[str, Any]:
    """Return a file's header, rows and hash. Raises UnreadableTable, OSError.

    `units` are those of times and rates, for a file that may hold printed lines.
    """
    data = _bytes(path, limits["bytes"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableTable(f"is not UTF-8 text (at byte {error.start})") from None
    if "\0" in text:
        raise UnreadableTable("is not text (it holds a zero byte)")
    lines = _records(text)
    if lines is None and units and not printed_rows.is_table(text):
        lines = printed_rows.rows(text, units)
        if text.strip() and not lines:
            raise UnreadableTable("has no line with a number, such as `time: 3.2 ms`")
    if lines is None:
        if max((line.count(",") for line in text.splitlines()), default=0) > 8 * limits["columns"]:
            # pandas would take minutes
            raise UnreadableTable(f"has more than {limits['columns']} columns")
        lines = _parse(text)
    header, *rows = [[cell.strip() for cell in line] for line in lines] or [[]]
    rows = [row for row in rows if row != header]  # of files written one after another
    if len(rows) > limits["rows"]:
        raise UnreadableTable(f"has {len(rows)} rows, more than {limits['rows']}")
    if len(header) > limits["columns"]:
        raise UnreadableTable(f"has {len(header)} columns, more than {limits['columns']}")
    if repeated := sorted({name for name in header if name and header.count(name) > 1}):
        raise UnreadableTable(f"has the column {repeated[0]!r} twice")
    if any(len(cell) > limits["cell"] for line in (header, *rows) for cell in line):
        raise UnreadableTable(f"has a cell of more than {limits['cell']} characters")
    return {"columns": header, "rows": rows,
            "sha256": hashlib.sha256(data).hexdigest()}


def _bytes(path: str, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableTable("is not a plain file")
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableTable(f"is larger than {most >> 10} KiB")
    return data


def _records(text: str) -> list[list[str]] | None:
    """Return a JSON list of objects as a header and rows, None if the text is not JSON.

    The list may also be the only list of objects in an object, as Google Benchmark writes it.
    Cells that are lists or objects become empty. Raises UnreadableTable for other JSON.
    """
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except ValueError:
        return None
    except RecursionError:
        raise UnreadableTable("is JSON, but nested too deeply") from None
    lists = [value] if isinstance(value, list) else [
        rows for rows in value.values()
        if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
    if len(lists) != 1 or not all(isinstance(row, dict) for row in lists[0]):
        raise UnreadableTable("is JSON, but no list of objects, one for each row")
    rows = [_of_pytest(row) if "fullname" in row and isinstance(row.get("stats"), dict) else row
            for row in lists[0]]
    header = list(dict.fromkeys(name for row in rows for name, cell in row.items()
                                if not isinstance(cell, list | dict)))
    return [header, *([_cell(row.get(name)) for name in header] for row in rows)]


def _of_pytest(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of pytest-benchmark: the test's name, parameters and extra information, times.

    Each of its tests has passed: pytest fails otherwise, and no table is read after that.
    """
    times = {f"{name}_time_s": row["stats"][name] for name in ("min", "median", "mean")
             if name in row["stats"]}
    return {"name": row.get("name"), **(row.get("params") or {}), **(row.get("extra_info") or {}),
            **times, "passed": "true"}


def _cell(value: object) -> str:
    if value is None or isinstance(value, list | dict):
        return ""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _parse(text: str) -> list[list[str]]:
    pandas = import_module("pandas")
    try:
        table = pandas.read_csv(io.StringIO(text), header=None, dtype=str, na_filter=False,
                                skipinitialspace=True, index_col=False)
    except pandas.errors.EmptyDataError:
        return []
    except pandas.errors.ParserError as error:
        raise UnreadableTable(f"is not CSV: {error}") from None
    lines: list[list[str]] = table.fillna("").values.tolist()
    return lines


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return a file's table, `error` if it cannot be read, or `missing` with pandas' import error.
    """
    try:
        import_module("pandas")
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    try:
        return read(job["path"], job["limits"], job.get("units", ()))
    except UnreadableTable as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"cannot be read: {error.strerror}"}
    except Exception as error:
        return {"error": f"is not CSV: {type(error).__name__}: {error}"}


def main(descriptor: int) -> None:
    channel.serve(descriptor, answer)

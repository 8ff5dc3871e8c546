"""Migrations of the journal from one schema version to the next.

Schema 3 recorded a candidate's task in pieces of 500 characters in its event, trials as cells of
results.tsv, and the knobs and ideas of a slot only in the words of its hypothesis.
Schema 4 had no waiting line. Schema 5 has the same tables, with states that an older kopt would
misread.
Schema 5 did not record the subagent of a slot, schema 6 the progress of its model, schema 7 the
cost of models; schema 8 recorded a near gain only in the words of its decision. Schema 9 did not
record that a process only answers requests; schema 10 recorded a person's rejection, and that
nothing was left to try, only in words; schema 11 so recorded why a person is asked.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 12
TABLES = "schema.sql"
"""The script that makes the tables of a new journal."""
_CELLS = 12
"""Cells of a row of results.tsv."""
_LATENCY_KINDS = ("measured-gpu", "measured-cpu", "reported", "predicted")


def run_script(connection: sqlite3.Connection, name: str) -> None:
    """Run a script of this folder in the open transaction; `executescript` would commit it."""
    statement = ""
    for line in Path(__file__).with_name(name).read_text().splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def _from_3_to_4(connection: sqlite3.Connection) -> None:
    """Move what was recorded in texts and in pieces of JSON into typed columns."""
    run_script(connection, "schema_3_to_4.sql")
    _candidates(connection)
    _trials(connection)


def _from_8_to_9(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE decisions ADD COLUMN near_gain REAL")
    for number, reason in connection.execute(
            "SELECT id, reason FROM decisions WHERE kind = 'tie'").fetchall():
        if near := re.search(r"near gain of (\d+\.\d)%, not sure; ", reason):
            connection.execute("UPDATE decisions SET near_gain = ? WHERE id = ?",
                               (float(near[1]) / 100, number))


def _from_10_to_11(connection: sqlite3.Connection) -> None:
    connection.execute(
        "ALTER TABLE decisions ADD COLUMN is_rejection INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE decisions SET is_rejection = 1 WHERE kind = 'reject'"
        " AND substr(reason, 1, 12 + length(actor)) = 'rejected by ' || actor")
    for seq, _, best, stop in _events(connection, "campaign.stop"):
        if str(stop.get("reason", "")).startswith("nothing left to try: "):
            _replace(connection, seq, {**stop, "nothing_left_on": best})


def _from_11_to_12(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE decisions ADD COLUMN doubts TEXT NOT NULL DEFAULT ''")
    words = " — asks because "
    connection.execute("UPDATE decisions SET doubts = substr(reason, instr(reason, ?) + ?)"
                       " WHERE kind = 'ask' AND instr(reason, ?)", (words, len(words), words))


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], object]] = {
    3: _from_3_to_4,
    4: lambda connection: None,
    5: methodcaller("execute", "ALTER TABLE slots ADD COLUMN subagent TEXT NOT NULL DEFAULT ''"),
    6: methodcaller("execute", "ALTER TABLE slots ADD COLUMN agent TEXT"),
    7: methodcaller(
        "execute",
        "CREATE TABLE model_costs (campaign TEXT NOT NULL, round INTEGER NOT NULL,"
        " slot TEXT NOT NULL, attempt INTEGER NOT NULL, model TEXT NOT NULL,"
        " steps INTEGER NOT NULL, unpriced INTEGER NOT NULL, cost_usd REAL NOT NULL,"
        " tokens_read INTEGER NOT NULL, tokens_written INTEGER NOT NULL,"
        " PRIMARY KEY (campaign, round, slot, attempt, model))"),
    8: _from_8_to_9,
    9: methodcaller(
        "execute", "ALTER TABLE leases ADD COLUMN answers_only INTEGER NOT NULL DEFAULT 0"),
    10: _from_10_to_11, 11: _from_11_to_12}
"""By N: the function that migrates schema N to N + 1 inside the open transaction."""


def _candidates(connection: sqlite3.Connection) -> None:
    scopes: dict[tuple[str, str], str] = {}
    for seq, campaign, candidate, event in _events(connection, "candidate.captured"):
        task = _task("".join(event.pop("task", ())))
        form_of, scope = event.get("of", ""), task.get("scope", "")
        if task:
            connection.execute("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?)",
                               (campaign, candidate, json.dumps(task)))
        scope = scopes[campaign, candidate] = scope or scopes.get((campaign, form_of), "")
        connection.execute(
            "UPDATE candidates SET form_of = ?, left_out = ?, cut = ?, scope = ?"
            " WHERE campaign = ? AND id = ?",
            (form_of, event.get("left_out", ""), event.get("cut", ""), scope, campaign, candidate))
        _replace(connection, seq, event)


def _task(text: str) -> dict[str, Any]:
    """Return a task of schema 3 with its requests under their present names, {} if unreadable."""
    try:
        task: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    repair, split = task.pop("mend", None), task.pop("divide", None)
    if split is not None and "told" in split:
        split["reason"] = split.pop("told")
    return {**task, "repair": repair, "split": split}


def _trials(connection: sqlite3.Connection) -> None:
    for seq, campaign, slot, event in _events(connection, "trials"):
        at, = connection.execute("SELECT at FROM events WHERE seq = ?", (seq,)).fetchone()
        rows = [cells for cells in event.pop("rows", ()) if len(cells) == _CELLS]
        for cells in rows:
            experiment, tag, _, _, _, _, correctness, latency, pct, source, kernel, text = cells
            round, _, rest = experiment.partition(".")
            config, kind, reason = _description(text)
            if latency and not kind:  # the text was cut off before the kind
                latency, reason = "", f"{latency} us; {reason}"
            connection.execute(
                "INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (campaign, int(round), slot, int(rest.rpartition(".")[2]), config, tag,
                 correctness, float(latency) if latency else None, kind or None,
                 float(pct) if pct else None, source, kernel, reason, at))
        _replace(connection, seq, {**event, "count": len(rows)})


def _description(text: str) -> tuple[str, str, str]:
    """Return a trial's configuration as JSON, its kind of latency and its reason."""
    try:
        config, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return "{}", "", text
    rest = text[end:].removeprefix("; ")
    kind = next((kind for kind in _LATENCY_KINDS if re.match(rf"{kind}(; |$)", rest)), "")
    return json.dumps(config), kind, rest.removeprefix(kind).removeprefix("; ") if kind else rest


def _events(connection: sqlite3.Connection,
            kind: str) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
    for seq, campaign, ref, payload in connection.execute(
            "SELECT seq, campaign, ref, payload FROM events WHERE kind = ? ORDER BY seq",
            (kind,)).fetchall():
        yield seq, campaign, ref, json.loads(payload)


def _replace(connection: sqlite3.Connection, seq: int, payload: dict[str, Any]) -> None:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    connection.execute("UPDATE events SET payload = ? WHERE seq = ?", (text.encode(), seq))

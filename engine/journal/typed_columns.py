"""Migrates schema 3 to 4: what was recorded in texts and in cut-up JSON becomes typed columns.

Schema 3 recorded a candidate's task in pieces of 500 characters in its event, trials as cells of
results.tsv, and the knobs and ideas of a slot only in the words of its hypothesis.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

NEW_TABLES = """
CREATE TABLE tasks (
    campaign TEXT NOT NULL, candidate TEXT NOT NULL, task TEXT NOT NULL,
    PRIMARY KEY (campaign, candidate)
);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, round INTEGER NOT NULL,
    slot TEXT NOT NULL, number INTEGER NOT NULL, config TEXT NOT NULL, tag TEXT NOT NULL,
    correctness TEXT NOT NULL, latency_us REAL, latency_kind TEXT, pct_of_roofline REAL,
    candidate_id TEXT NOT NULL, kernel_id TEXT NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX trials_campaign ON trials (campaign, id);
"""
_NEW_COLUMNS = {
    "campaigns": ("doubt",),
    "slots": ("option", "knobs", "idea", "limiter", "config_class"),
    "candidates": ("form_of", "left_out", "cut", "scope"),
}
_UNACCEPTED = "the best was not accepted: it has no verdict against the baseline"
_CELLS = 12
"""Cells of a row of results.tsv."""
_HANDED_IN = "handed in: "
_LATENCY_KINDS = ("measured-gpu", "measured-cpu", "reported", "predicted")
IDEAS = {
    "another blocking of the loops, so that what is read twice stays close": "blocking",
    "another layout or order of access, so that memory moves in long runs": "layout",
    "loads ahead of the arithmetic that needs them": "prefetch",
    "less work: fuse what follows, skip what is not needed": "less-work",
    "another split of the work over threads, blocks or processing units": "work-split",
    "wider loads, stores and vector or matrix instructions": "wide-instructions",
    "fewer registers, so that more is in flight, or more work for each thread": "registers",
    "independent instructions between a load and its wait, and around barriers": "latency-hiding",
    "fewer address computations, conversions and branches in the innermost loop": "inner-loop",
    "several sums at once, as many as the unit's latency asks for": "accumulators",
    "the form that the vendor's own library has of this op": "vendor-form",
    "the fastest published kernel of this op, and the schedule it uses": "published-form",
    "another algorithm that moves or computes less": "algorithm",
    "a kernel of its own for each config class, behind a dispatch": "class-kernels",
    "the whole op rewritten from nothing for this card's newest instructions": "rewrite",
}
"""The ideas of stagnation reviews as hypotheses of schema 3 worded them, and their keys."""


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate inside the open transaction."""
    for statement in filter(str.strip, NEW_TABLES.split(";")):
        connection.execute(statement)
    for table, names in _NEW_COLUMNS.items():
        for name in names:
            default = "[]" if name == "knobs" else ""
            connection.execute(
                f"ALTER TABLE {table} ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'")
    connection.execute("ALTER TABLE decisions ADD COLUMN is_fault INTEGER NOT NULL DEFAULT 0")
    connection.execute("UPDATE decisions SET is_fault = 1 WHERE kind = 'reject' AND ("
                       "reason LIKE 'could not be judged%' OR reason LIKE 'could not be kept%')")
    _campaigns(connection)
    _slots(connection)
    _candidates(connection)
    _trials(connection)


def _campaigns(connection: sqlite3.Connection) -> None:
    for id, reason in connection.execute(
            "SELECT id, reason FROM campaigns WHERE instr(reason, ?)", (_UNACCEPTED,)).fetchall():
        connection.execute("UPDATE campaigns SET reason = ?, doubt = ? WHERE id = ?", (
            reason.replace(f"; {_UNACCEPTED}", "").replace(_UNACCEPTED, ""), _UNACCEPTED, id))


def _slots(connection: sqlite3.Connection) -> None:
    bottlenecks: dict[tuple[str, int], dict[str, tuple[str, str]]] = {}
    for campaign, round, id, limiter, config_class in connection.execute(
            "SELECT campaign, round, id, limiter, config_class FROM bottlenecks").fetchall():
        bottlenecks.setdefault((campaign, round), {})[id] = (limiter, config_class)
    for rowid, campaign, round, kind, backend, hypothesis, bottleneck in connection.execute(
            "SELECT rowid, campaign, round, kind, backend, hypothesis, bottleneck"
            " FROM slots").fetchall():
        limiter, config_class = bottlenecks.get((campaign, round), {}).get(
            bottleneck.partition(" ")[0], ("", ""))
        knobs: list[str] = []
        option = idea = ""
        if backend == "search" and kind == "planned":
            words, against, _ = hypothesis.partition(" against ")
            knobs = words.split(" and ") if against else []
        elif backend == "inbox":
            option = hypothesis.removeprefix(_HANDED_IN)
        elif backend == "cli":
            option = hypothesis.partition(": ")[0]
            idea = next((key for words, key in IDEAS.items() if words in hypothesis), "")
        connection.execute(
            "UPDATE slots SET option = ?, knobs = ?, idea = ?, limiter = ?, config_class = ?"
            " WHERE rowid = ?", (option, json.dumps(knobs), idea, limiter, config_class, rowid))


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
            experiment, tag, _, _, _, _, correctness, latency, pct, source, kernel, words = cells
            round, _, rest = experiment.partition(".")
            config, kind, reason = _description(words)
            if latency and not kind:  # the text was cut off before it
                latency, reason = "", f"{latency} us; {reason}"
            connection.execute(
                "INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (campaign, int(round), slot, int(rest.rpartition(".")[2]), config, tag,
                 correctness, float(latency) if latency else None, kind or None,
                 float(pct) if pct else None, source, kernel, reason, at))
        _replace(connection, seq, {**event, "count": len(rows)})


def _description(words: str) -> tuple[str, str, str]:
    """Return a trial's configuration as JSON, its kind of latency and its reason."""
    try:
        config, end = json.JSONDecoder().raw_decode(words)
    except ValueError:
        return "{}", "", words
    rest = words[end:].removeprefix("; ")
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

"""A slot cannot open, and so not lock, a journal of another workspace while somebody uses it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine.journal import database
from harness.isolation import guard
from tests.support.engines import campaigns, instant_verdicts

LOCK = """\
import fcntl, sys
for end in ("", "-wal", "-shm"):
    try:
        fcntl.lockf(open(sys.argv[1] + end, "rb"), fcntl.LOCK_SH | fcntl.LOCK_NB)
        print("locked", end)
    except OSError as error:
        print("no lock", end, error)
"""


def test_journals_in_use_are_found_wherever_they_lie(tmp_path: Path) -> None:
    expected = set(database.files(tmp_path / "elsewhere"))
    assert not expected & set(database.open_files())
    with closing(database.open_for_writing(tmp_path / "elsewhere")):
        assert expected <= set(database.open_files())


def test_slot_takes_no_lock_on_the_journal_of_another_workspace(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard.confinement_problem():
        pytest.skip("workers cannot be confined here")
    instant_verdicts.install(monkeypatch)
    elsewhere, script = tmp_path / "elsewhere", tmp_path / "lock.py"
    script.write_text(LOCK)
    setup = campaigns.create(tmp_path, max_iterations=1, pool={
        "slots": 1, "mode": "fixed", "backends": ["cli"],
        "cli": [{"name": "locks", "command": f"{{python}} {script} "
                                             f"{elsewhere / database.FILE} {{prompt}}"}]})
    with closing(database.open_for_writing(elsewhere)) as journal:
        journal.execute("BEGIN IMMEDIATE")  # makes the other two files
        journal.execute("ROLLBACK")
        campaigns.run(setup)
    [log] = setup.folder.path.glob("rounds/*/candidates/fixed/worker-1.log")
    assert log.read_text().count("no lock") == 3, log.read_text()

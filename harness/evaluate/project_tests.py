"""Run the project's own tests, which a candidate must pass before it is timed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.errors import Cancelled
from harness.formats import file_copy, shell_command
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits
from harness.runners.session import Session

OUTPUT_BYTES = 16 << 20


def failure(command: str, tree: Path, session: Session, held: DeviceLock | None,
            wall_s: float) -> str:
    """Run the command in a copy of the tree; return why it failed, "" if it passed.

    Where runners can be confined, the command may write only to the copy and to its own home, and
    has no network. Raises Cancelled.
    """
    try:
        variables, argv = shell_command.split(command)
    except ValueError as error:
        return str(error)
    folder = session.folder("tests")
    file_copy.remove(folder)
    copy, home = folder / "tree", folder / "home"
    home.mkdir(parents=True)
    file_copy.copy_sources(tree, copy)
    bin_folder = os.path.dirname(session.place.python or sys.executable)
    env = guard.clean_env({**session.place.env, **variables}, home=home)
    env["PATH"] = f"{bin_folder}:{env['PATH']}"
    confine = None if session.runners.unconfined else Confine(
        writable=(str(folder),), nodes=session.place.nodes)
    limits = Limits(wall_s=wall_s, output_bytes=OUTPUT_BYTES)
    try:
        outcome = guard.run(argv, cwd=copy, env=env, limits=limits, confine=confine,
                            lock=held, yields=session.yields, cancel=session.cancel, name="tests")
    finally:
        file_copy.remove(copy)
    if session.cancel is not None and session.cancel.is_set():
        raise Cancelled("stopped while the project's tests ran")
    return "" if outcome.ok else outcome.reason_line or outcome.describe(limits)

"""Opens the dashboard; Textual is loaded only once a terminal is known to be there."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import EnvironmentFault, KoptError

if TYPE_CHECKING:  # start-up time
    from engine.run.engine import Engine

BEGAN = time.time()


class DashboardCrashed(KoptError):
    """The dashboard crashed; campaigns in other processes run on."""

    exit_code = 1


def main(workspace: Path, *, readonly: bool = False, campaign: str | None = None,
         engine: Engine | None = None) -> int:
    """Show the dashboard until it is left, and return the exit code.

    `campaign` opens that campaign; `engine` is an engine thread of this process, which the
    dashboard offers to stop. Raises EnvironmentFault without a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EnvironmentFault("the dashboard needs a terminal", where="stdout",
                               fix="`kopt status` and `kopt events --follow` work without one")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    for name in ("COLUMNS", "LINES"):  # if exported, they would fix the size
        os.environ.pop(name, None)
    gc.disable()  # nothing loaded for the first paint is garbage; this saves 15 ms
    from kopt_tui.dashboard.dashboard import Dashboard

    app = Dashboard(workspace, readonly=readonly, campaign=campaign or "", engine=engine,
                    on_painted=_collect_again)
    threading.excepthook = lambda thread: app.call_later(app._handle_exception, thread.exc_value)
    try:
        app.run()
    finally:
        threading.excepthook = threading.__excepthook__
    if app.failure is not None:
        raise _crashed(workspace, app.failure, engine)
    return app.return_code or 0


def _crashed(workspace: Path, failure: Exception, engine: Engine | None) -> KoptError:
    """Write the traceback to a file, and return the error that is printed instead."""
    import traceback

    lines = traceback.format_exception(failure)
    cause = lines[-1].strip().splitlines()[0][:200]
    effect = "campaigns keep running" if engine is None else \
        "the engine of this process stops, kopt resume continues its campaign"
    what, fix = f"the dashboard crashed: {cause}", f"{effect}; report it with"
    if _was_changed():
        what = "kopt was changed while the dashboard was open"
        fix = f"{effect}; start it again; the error is in"
    for folder in (workspace, Path(tempfile.gettempdir())):
        path = folder / "dashboard-crash.log"
        with contextlib.suppress(OSError):
            path.write_text("".join(lines))
            return DashboardCrashed(what, fix=f"{fix} {path}")
    return DashboardCrashed(what, fix=effect)


def _was_changed() -> bool:
    """Return whether a file of kopt is newer than this process, so that it runs a mixture."""
    root = Path(__file__).parents[2]
    return any(path.stat().st_mtime > BEGAN for room in ("harness", "engine", "kopt_tui")
               for path in (root / room).rglob("*.py"))


def _collect_again() -> None:
    gc.freeze()
    gc.enable()

"""Opening the dashboard: cheap to import, loads Textual only once it is really opened."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import EnvironmentFault

if TYPE_CHECKING:
    from kopt_tui.dashboard.dashboard import EngineThread

STOP_S = 60.0


def main(workspace: Path, *, readonly: bool = False, campaign: str | None = None,
         engine: EngineThread | None = None) -> int:
    """Show the dashboard until it is left, and return the exit code.

    `campaign` opens that campaign; `engine` is an engine thread of this process, which is stopped
    in order when the dashboard is left. Raises EnvironmentFault without a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EnvironmentFault("the dashboard needs a terminal", where="stdout",
                               fix="`kopt status` and `kopt events --follow` do not")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    for name in ("COLUMNS", "LINES"):  # exported ones would hold the first size for ever
        os.environ.pop(name, None)
    gc.disable()  # nothing that is loaded for the first paint is garbage: 15 ms
    from kopt_tui.dashboard.dashboard import Dashboard

    app = Dashboard(workspace, readonly=readonly, campaign=campaign or "", engine=engine,
                    painted=_collect_again)
    try:
        app.run()
    finally:
        if engine is not None and engine.is_alive():
            engine.stop()
            engine.join(STOP_S)
    return app.return_code or 0


def _collect_again() -> None:
    gc.freeze()
    gc.enable()

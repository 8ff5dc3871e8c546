"""Opens the dashboard; Textual is loaded only once a terminal is known to be there."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from harness.errors import EnvironmentFault
from kopt_tui.control import EngineThread


def main(workspace: Path, *, readonly: bool = False, campaign: str | None = None,
         engine: EngineThread | None = None) -> int:
    """Show the dashboard until it is left, and return the exit code.

    `campaign` opens that campaign; `engine` is an engine thread of this process, which the
    dashboard offers to stop. Raises EnvironmentFault without a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EnvironmentFault("the dashboard needs a terminal", where="stdout",
                               fix="`kopt status` and `kopt events --follow` work without one")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    for name in ("COLUMNS", "LINES"):  # if exported, they would fix the size for ever
        os.environ.pop(name, None)
    gc.disable()  # nothing loaded for the first paint is garbage; this saves 15 ms
    from kopt_tui.dashboard.dashboard import Dashboard

    app = Dashboard(workspace, readonly=readonly, campaign=campaign or "", engine=engine,
                    on_painted=_collect_again)
    app.run()
    return app.return_code or 0


def _collect_again() -> None:
    gc.freeze()
    gc.enable()

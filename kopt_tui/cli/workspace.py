"""The workspace of a command: the flag, KOPT_WORKSPACE, or ./workspace."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def workspace_of(args: argparse.Namespace) -> Path:
    """Return the workspace: --workspace, KOPT_WORKSPACE, or ./workspace."""
    return Path(args.workspace or os.environ.get("KOPT_WORKSPACE") or "workspace").expanduser()

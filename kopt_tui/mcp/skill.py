"""Write a skill folder that tells a coding agent how to use kopt."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError

MARK = "<!-- written by kopt mcp --install-skill -->"
_TEXT = """\
---
name: kopt
description: Judge and tune GPU and CPU kernels with kopt. Use it whenever a kernel is to become \
faster or a speedup is to be proven.
---
{mark}
# kopt

kopt checks a changed kernel against its reference and times it against the present one, in turns
and with intervals. Report its numbers, never your own timings.

- `kopt new FILE:FUNCTION --yes` writes manifest.yaml for a kernel.
- `kopt evaluate manifest.yaml --patch change.diff --json` judges a change; `-` reads it from
  standard input. Exit code 0: faster; 1: not; 2: wrong input; 3: the environment.
- `kopt propose --json` lists knobs, `kopt loop --json` searches them.
- `kopt run manifest.yaml` starts a campaign, `kopt submit change.diff` submits to it.
- A person approves gains that wait: never run `kopt approve` for them.

`kopt mcp` offers the same as MCP tools over standard input and output.

`kopt --help` lists all verbs, `kopt VERB --help` their options.
"""


def install(folder: Path) -> Path:
    """Write SKILL.md into `folder`/kopt and return its path.

    Raises InputError if there is a file that kopt did not write.
    """
    path = folder / "kopt" / "SKILL.md"
    if path.is_symlink() or (path.exists() and MARK not in path.read_text(errors="replace")):
        raise InputError("the file was not written by kopt and is not overwritten",
                         where=str(path), fix="move it away or choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEXT.format(mark=MARK))
    return path

"""A command that reports in JSON lines; of its arguments NAME PROMPT, NAME says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

DONE = {"step": "2", "cost_usd": 0.5, "text": "Done.\nHypothesis: one pass"}


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def good() -> None:
    assert "One hypothesis" in Path(sys.argv[2]).read_text()
    say(step="1", text="I look.", command="cat scale.c")
    say(output=Path("scale.c").read_text()[:40])
    say(**DONE)


def torn() -> None:
    """Write a line in pieces, and the last line without a line end."""
    line = json.dumps({"step": "1", "command": "cat scale.c"})
    for piece in (line[:7], line[7:20], f"{line[20:]}\n", json.dumps(DONE)):
        sys.stdout.write(piece)
        sys.stdout.flush()
        time.sleep(0.05)


def huge() -> None:
    for _ in range(3):
        sys.stdout.write('{"text": "' + "x" * (6 << 20) + '"}\n')
    sys.stdout.write("y" * (6 << 20) + "\n")
    say(**DONE)


def nonsense() -> None:
    sys.stdout.buffer.write(b'{"text": \xff}\n{}\n[]\n{"a":\nnull\n' + b"[" * 100_000 + b"\n\0\0\n")
    sys.stdout.flush()
    say(step=["a", {}], text=7, command={"x": 1}, cost_usd="much", output=None, error=[])
    say(**DONE)


def escapes() -> None:
    say(step="\x1b[2J", text="\x1b]0;title\x07red \x1b[31mtext\u202e", command="rm\x1b[1A -rf /")
    say(error="\x1b[31mbroken\x07\nkopt: approved", **DONE)


def secret() -> None:
    say(text=os.environ["AGENT_KEY"], command=f"echo {os.environ['AGENT_KEY']}", step="1")
    say(**DONE)
    sys.exit(1)


def fails() -> None:
    say(step="1", error="provider: 401 invalid x-api-key", cost_usd=0.25)
    sys.exit(3)


def spends() -> None:
    """Ask a model that costs 0.3 USD an answer, until somebody ends this process."""
    for step in range(1, 1000):
        say(step=str(step), cost_usd=0.3 * step)
        time.sleep(0.2)


def unpriced() -> None:
    """Ask a model without a word on what it costs."""
    say(step="1", text="I look.")


def endless() -> None:
    """Report for ever, with a child that would outlive its parent."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    while True:
        say(step=str(time.monotonic()), command="make", text="again")


if __name__ == "__main__":
    globals()[sys.argv[1]]()

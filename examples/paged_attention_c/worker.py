"""A worker that has no ideas of its own: it takes one step after another from patches/.

`python worker.py PROMPT`, in a copy of this folder. Which step is next it sees from the source and
from what the prompt says of rounds before; PAGED_STEP names one instead.
"""

import os
import sys
from pathlib import Path

SOURCE = Path("attention.c")
WRONG, RIGHT = "four-values-wrong", "four-values"
SLOWER = ("compensated-products", "double-products", "exact-weights")


def hunks(name):
    """Return what a patch replaces and by what, as texts of whole lines."""
    text = (Path(__file__).parent / "patches" / f"{name}.patch").read_text()
    for part in text.split("\n@@ ")[1:]:
        lines = part.split("\n")[1:]
        yield tuple("".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", mark))
                    for mark in "-+")


def holds(source, name):
    return all(new in source for _, new in hunks(name))


def change(source, pairs):
    """Return the source with every text replaced wherever it stands, which is at least once."""
    for old, new in pairs:
        if old not in source:
            sys.exit(f"this is not in {SOURCE}:\n{old}")
        source = source.replace(old, new)
    return source


def next_step(source, prompt):
    if os.environ.get("PAGED_STEP"):
        return os.environ["PAGED_STEP"]
    if holds(source, RIGHT):
        return SLOWER[prompt.count("\n- round ") % len(SLOWER)]
    return RIGHT if holds(source, WRONG) or "## Repair" in prompt else WRONG


source = SOURCE.read_text()
step = next_step(source, Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else "")
if holds(source, WRONG):  # what is repaired is taken out first
    source = change(source, [(new, old) for old, new in hunks(WRONG)])
SOURCE.write_text(change(source, hunks(step)))
print(f"took {step}")

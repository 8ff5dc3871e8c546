"""A scripted coding agent for repeatable campaigns: it makes edits from a fixed list of ideas.

    python bench/scripted_agent.py IDEAS.yaml PROMPT.md

Runs in a worktree, as a `cli` worker does. It takes the first idea that the prompt does not name as
tried and whose edits apply to the source as it is now. Every edit is a pattern and what replaces
each match. A prompt that asks for a repair gets the first `repair` that applies.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml


def main() -> None:
    listed, prompt = yaml.safe_load(Path(sys.argv[1]).read_text()), Path(sys.argv[2]).read_text()
    source = Path(listed["source"])
    chosen = choose(listed["ideas"], source.read_text(), " ".join(prompt.split()))
    if chosen is None:
        print("no idea for this task")
        return
    hypothesis, text = chosen
    source.write_text(text)
    print(f"Hypothesis: {hypothesis}")


def choose(ideas: list[dict[str, Any]], source: str, prompt: str) -> tuple[str, str] | None:
    """Return the chosen idea's hypothesis and the edited source; None if no idea fits."""
    if "## Kernel split" in prompt:
        return None
    repair = "## Repair" in prompt
    for idea in ideas:
        if not repair and idea["why"] in prompt:
            continue
        text = edited(source, idea.get("repair", []) if repair else idea["edits"])
        if text is not None and text != source:
            return idea["why"], text
    return None


def edited(source: str, edits: list[list[str]]) -> str | None:
    """Return the source with every match of each pattern replaced, None if one has no match."""
    for pattern, replacement in edits:
        source, count = re.subn(pattern, replacement, source)
        if not count:
            return None
    return source


if __name__ == "__main__":
    main()

"""The ideas of bench/scripted_agent.py apply to the softmax example, also after a split."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine.split import specialise
from engine.split.class_preferences import ClassGroup
from engine.split.languages.conditions import parse
from engine.split.languages.python_language import Python
from tests.support.paths import EXAMPLES, ROOT

IDEAS = ROOT / "bench" / "ideas" / "softmax_triton.yaml"
SOURCE = (EXAMPLES / "softmax_triton" / "kernel.py").read_text()
WHY = [idea["why"] for idea in yaml.safe_load(IDEAS.read_text())["ideas"]]


def ask(folder: Path, prompt: str) -> str:
    """Run the agent on the kernel in a folder, and return what it prints."""
    (folder / "prompt.md").write_text(prompt)
    done = subprocess.run([sys.executable, ROOT / "bench/scripted_agent.py", IDEAS, "prompt.md"],
                          cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """Return a kernel with one general and one specialised copy of what the knobs change."""
    group = ClassGroup(condition=parse("cols >= 32768"), classes=("widest",), gain=1.4,
                       config={"VARIANT": "online", "CACHE": "streaming"},
                       points=({"cols": 32768},))
    path = tmp_path / "kernel.py"
    path.write_text(specialise.split(SOURCE, [group], {"cols": "x.shape[1]"},
                                     start={"VARIANT": "three_pass", "CACHE": "plain"},
                                     language=Python("triton")))
    return path


def test_ideas_apply_in_their_order_after_a_split(kernel: Path) -> None:
    for n, why in enumerate(WHY):
        before = kernel.read_text()
        assert ask(kernel.parent, "\n".join(WHY[:n])) == f"Hypothesis: {why}"
        assert kernel.read_text() != before
        compile(kernel.read_text(), "kernel.py", "exec")
    assert "VARIANT_v1 = persistent_v1 " in kernel.read_text()
    assert ask(kernel.parent, "\n".join(WHY)) == "no idea for this task"


def test_idea_that_no_longer_applies_is_skipped(kernel: Path) -> None:
    kernel.write_text(kernel.read_text().replace("tl.exp(", "exp("))
    assert ask(kernel.parent, WHY[0]) == f"Hypothesis: {WHY[2]}"

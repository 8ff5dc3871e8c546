"""Tests what `kopt new` says about a module whose Python has no torch."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from engine.discovery.module import problem_facts
from harness.errors import EnvironmentFault, InputError

RELU = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""


def test_missing_torch_is_named_with_the_command_that_installs_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    (tmp_path / "gate.py").write_text(RELU)
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(EnvironmentFault, match="torch is not installed") as \
            raised:
        problem_facts.learn(tmp_path / "gate.py", tmp_path, sizes={}, small=False, training=None)
    assert raised.value.fix.startswith(f"{python} -m pip install 'torch")


def test_process_that_ends_by_itself_gets_no_advice_on_sizes(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text("import os\nos._exit(3)\n" + RELU)
    with pytest.raises(InputError, match="exited with 3") as raised:
        problem_facts.learn(tmp_path / "gate.py", tmp_path, sizes={}, small=False, training=None)
    assert raised.value.fix == ""

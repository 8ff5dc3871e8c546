"""If `kopt new` fails or is ended by a signal, the project is as before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kopt_tui.cli.new import written_files
from tests.support.programs.command_line import error_text, kopt

MODULE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(8, 64)]

def get_init_inputs():
    return []
"""


def test_command_that_fails_leaves_no_task(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODULE)
    done = kopt("new", "model.py", "--yes", "--no-check", "--device", "cpu", "--set", "nothing=1",
                cwd=tmp_path)
    assert done.returncode == 2 and "nothing" in error_text(done)
    assert os.listdir(tmp_path) == ["model.py"]


def test_signal_restores_the_files_as_they_were(tmp_path: Path) -> None:
    task, folder = tmp_path / "task.yaml", tmp_path / "kopt_task"
    task.write_text("before")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, written_files.all_or_nothing(tmp_path, "task.yaml"):
        task.write_text("after")
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "reference.py").write_text("after")
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == handler
    assert task.read_text() == "before" and not folder.exists()

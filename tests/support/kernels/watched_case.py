"""Python functions, a test that calls them, and what kopt observes of these calls."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

from engine.discovery.watched import entry_source
from engine.discovery.watched.entry_source import EntrySource
from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import WatchedFunction, WatchedProgram
from tests.support.programs import once_per_run

KERNELS = """\
import functools
import torch


def norm(x, weight, eps=1e-6, *, mode="rms"):
    rows, cols = x.shape
    if cols == 1:
        raise ValueError("too narrow")
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def gather(out, table, index, cols, scale=None):
    out.copy_(table[index])
    return out


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x, None

    @staticmethod
    def backward(ctx, grad, _):
        return 2 * grad


double = Double.apply


class Scale(torch.nn.Module):
    def __init__(self, dim, factor=2.0, *, bias=None):
        super().__init__()
        self.factor = factor
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x, weight=1.0):
        return x * self.weight * self.factor * weight
"""
TEST = """\
import torch
from kernels import norm, gather, double, Scale


def torch_norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def test_norm(rows, cols):
    x = torch.randn(rows, cols, requires_grad=True)
    w = torch.randn(cols, requires_grad=True)
    y = norm(x, w, 1e-5, mode="fast")
    expected = torch_norm(x, w, 1e-5)
    torch.testing.assert_close(y, expected)


def test_gather():
    table = torch.rand(10, 6)
    index = torch.tensor([3, 0, 7, 7])
    out = torch.empty(4, 6)
    gather(out, table, index, 6)
    assert (out - table[index.long()]).abs().max() == 0


for rows, cols in ((4, 32), (4, 32), (7, 33), (5, 64)):
    test_norm(rows, cols)
try:
    norm(torch.randn(3, 1), torch.randn(1))
except ValueError:
    pass
test_gather()
y, _ = double(torch.ones(3, 20, requires_grad=True))
for rows, cols in ((4, 32), (7, 48)):
    layer = Scale(cols, bias=False)
    x = torch.randn(rows, cols, requires_grad=True)
    torch.testing.assert_close(layer(x), layer.factor * layer.weight * x)
"""


def project(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "kernels.py").write_text(KERNELS)
    (path / "test_it.py").write_text(TEST)
    return path


@functools.cache
def observe(function: str) -> tuple[EntrySource, WatchedProgram, Path]:
    """Return a function, what was observed of its calls, and the project; once per test run."""
    return once_per_run.value(f"observed-{function}", lambda: _observed(function))


def _observed(function: str) -> tuple[EntrySource, WatchedProgram, Path]:
    path = project(Path(tempfile.mkdtemp(prefix="kopt-watched-")))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    entry = entry_source.find(KERNELS, function, "kernels.py")
    observed = watched_calls.watch(
        [sys.executable, "test_it.py"],
        WatchedFunction(file=os.path.realpath(path / "kernels.py"), name=entry.name,
                        lines=entry.lines, owner=entry.owner), path, interpret=False)
    return entry, observed, path

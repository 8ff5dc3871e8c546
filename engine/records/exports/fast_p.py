"""Results of PyTorch modules in the form of KernelBench: files with ModelNew, and fast_p.

fast_p is the share of all problems whose solution is correct and more than p times as fast as the
eager module: fast_0 is the share of correct solutions.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from engine.records.exports.kept_result import KeptResult
from harness.errors import Refused

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
NEW = "ModelNew"


@dataclass(frozen=True, kw_only=True)
class ProblemResult:
    """One problem; `speedup` is eager latency / solution latency, None without a solution."""

    problem: str
    campaign: str = ""
    speedup: float | None = None
    why: str = ""
    """Why there is no solution."""


@dataclass(frozen=True, kw_only=True)
class FastPTable:
    """The scores of a set of problems, with the names of KernelBench's analysis."""

    total_count: int
    correct_count: int
    correctness_rate: float
    geo_mean_speedup: float
    fast_p: dict[str, float]
    problems: tuple[ProblemResult, ...]


def of(results: Sequence[ProblemResult]) -> FastPTable:
    """Return the table of some problems; its geometric mean is over the correct ones."""
    speedups = [each.speedup for each in results if each.speedup is not None]
    count = len(results)
    return FastPTable(
        total_count=count, correct_count=len(speedups),
        correctness_rate=len(speedups) / count if count else 0.0,
        geo_mean_speedup=math.exp(math.fsum(map(math.log, speedups)) / len(speedups))
        if speedups else 0.0,
        fast_p={str(p): sum(speedup > p for speedup in speedups) / count if count else 0.0
                for p in THRESHOLDS},
        problems=tuple(results))


def problem_result(result: KeptResult) -> ProblemResult:
    """Return a campaign's result on its problem. Raises Refused if it is not a PyTorch module."""
    target = result.target
    if target.entry != "Model" or target.adapter is None:
        raise Refused(f"{result.row.id} was not made from a PyTorch module",
                      fix="kopt new FILE makes a task of a KernelBench problem")
    verdict, name = result.verdict, PurePosixPath(target.source).stem
    if verdict is None or not verdict.correct or verdict.speedup is None:
        return ProblemResult(problem=name, campaign=result.row.id, why="nothing was kept")
    return ProblemResult(problem=name, campaign=result.row.id, speedup=verdict.speedup)


def solution_file(result: KeptResult) -> tuple[str, str]:
    """Return the name and the text of a solution's file; it defines ModelNew.

    In a folder `levelN`, a problem with a number gets the name that KernelBench's evaluation reads.
    """
    path = PurePosixPath(result.target.source)
    level = re.fullmatch(r"level_?(\d+)", path.parent.name or PurePosixPath(
        result.row.project).name)
    number = re.match(r"(\d+)_", path.name)
    name = f"level_{level[1]}_problem_{number[1]}_sample_0_kernel.py" if level and number \
        else path.name
    text = result.source
    defined = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    return name, text if NEW in defined else f"{text.rstrip()}\n\n\n{NEW} = Model\n"

"""Runs the checks of a kernel's process on C and Python kernels that change that process."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from harness.case import Case
from harness.compile import kernel
from harness.compile.place import place_on
from harness.correctness import runtime_audit
from harness.devices import inventory
from harness.isolation import device_lock
from harness.runners.oracle_client import Oracle
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from harness.runners.slots.case_memory import CaseMemory
from harness.verdict import Finding
from tests.exploits import case, problems
from tests.exploits.problems import Problem

THREADS = """
#include <pthread.h>
#include <sys/mman.h>
#include <dlfcn.h>
static volatile int sink;
static void *spin(void *unused) { for (;;) sink++; return unused; }
static void *nap(void *unused) { for (;;) pause(); return unused; }
static void start(void *(*what)(void *)) {
    static int started; pthread_t t;
    if (!started++) pthread_create(&t, 0, what, 0);
}
"""


CALL = "product(w, x, out, rows, cols);"


class Bench:
    """One oracle per problem, shared by many sources."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self._folder, self._count = folder, 0
        self._device = inventory.find(device)
        self._oracles: dict[tuple[str, str], tuple[Oracle, Case]] = {}

    def findings_on(self, problem: Problem, source: str) -> list[Finding]:
        """Return the findings on a source that is loaded and called once."""
        self._count += 1
        problem = problem.interpretable() if self._device.kind == "cpu" else problem
        folder, target = self._folder / str(self._count), problem.target
        place = place_on(self._device, target.language, scratch=str(folder),
                         python=None, env={})
        oracle, posed = self._oracles.get((target.op, target.reference)) or self._open(problem)
        built = kernel.make(target, Path(case.tree(folder, problem, source)), "candidate",
                            replace(place, scratch=str(self._scratch(problem))))
        with self._alone, RunnerPool(PYTHON_LIMITS) as runners, runners.start(built) as runner:
            memory = CaseMemory(oracle, runner, posed)
            assert memory.call(posed).bad == 0
            return runtime_audit.trial(memory, posed, target) + runtime_audit.watch(runner)

    @property
    def _alone(self) -> AbstractContextManager[object]:
        """The lock of the card; on the CPU none."""
        on_cpu = self._device.kind == "cpu"
        return nullcontext() if on_cpu else device_lock.acquire(
            self._device.lock_name)

    def _scratch(self, problem: Problem) -> Path:
        key = f"{problem.target.op} {problem.target.reference}"
        return self._folder / hashlib.sha256(key.encode()).hexdigest()[:16]

    def _open(self, problem: Problem) -> tuple[Oracle, Case]:
        scratch = self._scratch(problem)
        place = place_on(self._device, problem.target.language,
                         scratch=str(scratch), python=None, env={})
        base = Path(case.tree(scratch / "base", problem, problem.incumbent))
        oracle = Oracle(problem.target, base, scratch / "io", place)
        opened = oracle, oracle.make(problem.target.classes[0], "normal")
        self._oracles[problem.target.op, problem.target.reference] = opened
        return opened

    def close(self) -> None:
        for oracle, _ in self._oracles.values():
            oracle.close()


def c(body: str) -> tuple[Problem, str]:
    return problems.GEMV, problems.gemv(body + CALL, THREADS)


def mix(before: str, body: str = "return work(x, w)") -> tuple[Problem, str]:
    return problems.MIX, problems.mix(body, f"\n\n{before}\n")

"""A kernel with modes for speeds and faults, and the screening that measures them."""

from __future__ import annotations

from pathlib import Path

from harness.compile.kernel import Kernel
from harness.compile.place import Place
from harness.compile.precompile import CompileResult, Precompiler
from harness.devices import inventory
from harness.loop.screening import Screening
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import Screened, SearchJob
from harness.settings import Settings
from harness.tasks.target import ConfigClass
from tests.support.kernels.kernel_case import target, tree
from tests.support.programs import shared_zygotes

MODES = ("start", "slow", "little", "fast", "dies", "raises", "wrong", "hangs", "faster",
         "spoils")
WORK = """import os, time, torch
MODE = 0  # kopt: knob MODE in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
SECONDS = (4e-3, 4e-2, 3e-3, 3e-4, 0, 0, 1e-5, 0, 1e-5, 3.5e-4)

def double(x, out):
    if MODE == 4:
        os._exit(9)
    if MODE == 5:
        raise RuntimeError("does not like it")
    if MODE == 7:
        time.sleep(3600)
    end = time.perf_counter() + SECONDS[MODE]
    while time.perf_counter() < end:
        pass
    if MODE == 9 and x.numel() > 400:
        x.zero_()
    out.copy_(x if MODE == 6 and x.numel() > 400 else 2 * x)
"""


class NoPrecompiler(Precompiler):
    """A precompiler for Python kernels, which need none."""

    def _compile(self, key: str, source: str) -> CompileResult:
        return CompileResult()

    def give(self, key: str, kernel: Kernel) -> int:
        return 0


def open_screening(folder: Path, wall_s: float, source: str = WORK) -> Screening:
    at = tree(folder / "tree", source)
    task = target(language="python", classes=(
        ConfigClass(name="small", shape={"n": 331}), ConfigClass(name="large", shape={"n": 4099})))
    made = Screening(task, SearchJob(tree=at, reference=at), inventory.find("cpu"),
                     Settings(scratch=str(folder / "scratch"), wall_s=wall_s),
                     TunableSource.parse(source, language="python"),
                     zygote=shared_zygotes.zygote("python"))
    made.triton_builds = NoPrecompiler(task, Path(at), "sm_90",
                                       Place(scratch=str(folder / "ahead")))
    return made


def measure(screen: Screening, mode: str) -> Screened:
    return screen.measure({"MODE": MODES.index(mode)})

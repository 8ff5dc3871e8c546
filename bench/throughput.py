"""How many configurations a minute: a whole space compiled and ranked, ours against one by one.

    python bench/throughput.py [--parts baseline ours final triage] [--out FILE]
    python bench/throughput.py --compile-only [--arch sm_90] [--workers 1] [--limit 16]

`baseline` compiles and times each configuration with `triton.testing.do_bench`, one after another
in one process, imports not counted. `ours` starts from a zygote that has its imports done: compiles
ahead on all cores but one, and races. `final` is a verdict on our winner against the other's.
`triage` is what a fresh candidate costs from its fork to its first blocks. Each part is appended to
the file when it ends, and `final` takes the latest winners from it. Needs a GPU, but for
`--compile-only`, which says how long the compiling takes here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine
import throughput_space as space

from harness.compile import kernel, triton_aot
from harness.compile.kernel import Place
from harness.compile.precompile import Ahead
from harness.devices import datasheets
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import to_builtins
from harness.isolation.guard import clean_env
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import Zygote
from harness.loop.screening import Screening
from harness.loop.sweep import Sweep
from harness.roofline import cost_model
from harness.runners.session import GPU_LIMITS
from harness.runners.shared_process import SharedRunner
from harness.search.space import knobs
from harness.search.space.space import Config
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.timing.plan import SCREEN, Plan
from harness.timing.quick_timing import BLOCKS, QuickTimer

PARTS = ("baseline", "ours", "final", "triage")
TRIAGED = 7
WANTED, TRIAGE_S = 5.0, 0.7


class Bench:
    def __init__(self, out: Path) -> None:
        self.device = machine.card()
        self.task, self.out = space.task(), out
        self.place = kernel.place_on(self.device, "triton", scratch="", python=None, env={})
        self.zygote = warm_zygote(self.place)

    def keep(self, part: str, **fields: Any) -> None:
        line = {"part": part, "date": time.strftime("%Y-%m-%d %H:%M:%S"), **fields}
        with self.out.open("a") as file:
            file.write(json.dumps(to_builtins(line)) + "\n")
        shown = {name: value for name, value in line.items() if not isinstance(value, list)}
        print(json.dumps(to_builtins(shown))[:600], flush=True)

    def latest(self, part: str) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        return next(line for line in reversed(lines) if line["part"] == part)

    def baseline(self) -> None:
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as folder:
            tree = space.write(Path(folder) / "tree")
            env = clean_env({"TRITON_CACHE_DIR": f"{folder}/triton", **self.device.visible_env},
                            home=Path(folder))
            told = subprocess.run([sys.executable, __file__, "--one-by-one", tree], env=env,
                                  capture_output=True, text=True, timeout=240)
        if told.returncode:
            raise RuntimeError(told.stderr[-600:])
        *rows, whole = [json.loads(line) for line in told.stdout.splitlines()]
        best = min((row for row in rows if row["us"]), key=lambda row: row["us"])
        self.keep("baseline", seconds=whole["seconds"], configs=len(rows), best_us=best["us"],
                  winner=best["config"], rows=rows)

    def ours(self) -> None:
        asked = Asked()
        with asked, tempfile.TemporaryDirectory(prefix="kopt-bench-") as folder:
            began = time.monotonic()
            screen = self.screen(Path(folder))
            configs = space.configs()
            screen.expect(configs)
            with screen:
                entered = time.monotonic() - began
                swept = Sweep(screen).run(configs)
                seconds = time.monotonic() - began
                predicted = self.predicted(screen, configs)
        order = sorted((e for e in swept.entries if e.first_us), key=lambda e: e.first_us or 0.0)
        self.keep("ours", seconds=round(seconds, 3), by_question=asked.told(),
                  entered=round(entered, 3), spent=swept.spent,
                  configs=len(configs), workers=screen.ahead.workers if screen.ahead else 0,
                  winner=swept.winner, no_stubs=screen.ahead.no_stubs if screen.ahead else "",
                  rejected=sum(e.correctness == "REJECTED" for e in swept.entries),
                  failed=sum(e.correctness == "FAIL" for e in swept.entries),
                  predicted_rank=predicted.index(swept.winner) if swept.winner else None,
                  rows=[{"config": e.config, "first_us": e.first_us, "blocks": len(e.blocks_us),
                         "us": median(e.blocks_us), "correctness": e.correctness,
                         "why": e.reason} for e in order]
                  + [{"config": e.config, "correctness": e.correctness, "why": e.reason}
                     for e in swept.entries if not e.first_us])

    def screen(self, folder: Path) -> Screening:
        tree = space.write(folder / "tree")
        found = knobs.find(space.SOURCE, language="triton")
        return Screening(self.task, SearchJob(tree=tree, reference=tree), self.device,
                      Settings(scratch=f"{folder}/scratch"), space.SOURCE, found, None, self.zygote)

    def predicted(self, screen: Screening, configs: list[Config]) -> list[Config]:
        """Return the configurations in the order of their predicted latencies."""
        card = datasheets.find(self.device.name)
        if card is None or screen.ahead is None:
            return configs
        known = {number: screen.ahead.get(screen.ahead.expect(space.source(config))).resources
                 for number, config in enumerate(configs)}
        return [configs[one.key] for one in cost_model.rank(self.task, known, card)]

    def final(self) -> None:
        """Judge our winner against the baseline's, in processes of their own."""
        ours, other = self.latest("ours"), self.latest("baseline")
        same = ours["winner"] == other["winner"]
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
            folder = Path(name)
            trees = Trees(
                candidate=space.write(folder / "candidate",
                                      space.source(ours["winner"]) + "# ours\n"),
                incumbent=space.write(folder / "incumbent", space.source(other["winner"])),
                reference=space.write(folder / "reference"))
            verdict = evaluate(self.task, trees, self.device, Settings(
                scratch=f"{folder}/scratch", plan=Plan(looks=(4, 6, 9)), always_time=True,
                distributions=("normal",)), zygote=self.zygote)
        faster = other["seconds"] / ours["seconds"]
        no_worse = same or (verdict.speedup_high or 0.0) >= 1.0
        self.keep("final", times_faster=round(faster, 2), same_winner=same, valid=verdict.valid,
                  correct=verdict.correct, reason=verdict.rejected_reason,
                  speedup=verdict.speedup, low=verdict.speedup_low, high=verdict.speedup_high,
                  latency_us=verdict.latency_us, at_least_as_good=no_worse,
                  passed=bool(faster >= WANTED and verdict.correct and no_worse))

    def triage(self) -> None:
        """Time fresh candidates: fork, first correctness, first blocks, as a screen does it: their
        processes start while they compile.
        """
        configs = space.configs()[::len(space.configs()) // TRIAGED][:TRIAGED]
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name, \
                self.screen(Path(name)) as screen:
            rows = [self.triaged(screen, config, Path(name) / str(number))
                    for number, config in enumerate(configs)]
        over = median(row["over_s"] for row in rows)
        self.keep("triage", over_s=round(over, 3), passed=over <= TRIAGE_S, rows=rows)

    def triaged(self, screen: Screening, config: Config, folder: Path) -> dict[str, Any]:
        assert screen.ahead is not None
        runners = screen.stage.runners
        tree = Path(space.write(folder, screen.source_of(config)))
        plan, [case] = screen.stage.fitted(SCREEN), screen.cases
        steps: dict[str, float] = {}
        with screen.stage.lock() as held:
            began = last = time.monotonic()

            def step(name: str) -> None:
                nonlocal last
                steps[name], last = round(time.monotonic() - last, 4), time.monotonic()

            key = screen.ahead.expect(screen.source_of(config))
            made = screen.stage.make(tree, f"triage-{key}")
            runners.expect(made, 1)
            runners.settle(held, made)
            compile_s = screen.ahead.get(key).wall_s
            screen.ahead.give(key, made)
            step("make and compile")
            with runners.start(made, lock=held) as runner:
                step("fork and load")
                answer = runner.ask("call", case=case.id, tensors=case.tensors)
                step("first call")
                errors = screen.oracle.judge(case, answer.get("outputs"))
                judged = screen.budget.judge(case, errors, made, held)
                step("judge")
                solo = QuickTimer(runner, case, plan)
                ns = solo.first()
                step("first blocks")
                total_s = time.monotonic() - began
            screen.budget.close()
        calls = 1 + solo.copies + 6 + max(3, int(plan.warm_ns / ns)) + BLOCKS * (solo.calls + 1)
        run_s = calls * ns / 1e9
        return {"config": config, "us": ns / 1e3, "right": bool(judged and judged.right),
                "total_s": total_s, "run_s": run_s, "compile_s": compile_s,
                "over_s": total_s - run_s - compile_s, "steps": steps}


class Asked:
    """How long the lanes took to answer, question by question: seconds in all, and how many."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._send, self._receive = SharedRunner.send, SharedRunner.receive

    def __enter__(self) -> Asked:
        last: dict[int, tuple[str, float]] = {}

        def send(seat: SharedRunner, op: str, **fields: object) -> None:
            last[id(seat)] = op, time.monotonic()
            self._send(seat, op, **fields)

        def receive(seat: SharedRunner) -> dict[str, Any]:
            answer = self._receive(seat)
            op, began = last[id(seat)]
            self._seconds[op].append(time.monotonic() - began)
            return answer

        vars_of: Any = SharedRunner
        vars_of.send, vars_of.receive = send, receive
        return self

    def __exit__(self, *_: object) -> None:
        vars_of: Any = SharedRunner
        vars_of.send, vars_of.receive = self._send, self._receive

    def told(self) -> dict[str, dict[str, float]]:
        return {op: {"seconds": round(sum(each), 3), "count": len(each),
                     "median": round(median(each), 4)} for op, each in self._seconds.items()}


def warm_zygote(place: Place) -> Zygote:
    """Return a zygote that has imported all it imports."""
    kind = kernel.kind_of(place, "triton")
    assert kind is not None
    zygote = Zygote.start(kind)
    with tempfile.TemporaryDirectory() as home, Peer(
            "runner", cwd=Path(home), limits=GPU_LIMITS, zygote=zygote,
            env=clean_env(dict(place.env), home=Path(home))) as peer:
        peer.ask("ready", language="triton", device="cpu", interpret=False)
    return zygote


def one_by_one(tree: str) -> None:
    """Compile and time every configuration here; prints a line for each, then the seconds."""
    import importlib.util

    import torch
    import triton
    import triton.testing

    spec = importlib.util.spec_from_file_location("kernel", f"{tree}/kernel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a, b, c = (torch.randn(space.SIZE, space.SIZE, device="cuda").to(torch.bfloat16)
               for _ in range(3))
    torch.cuda.synchronize()
    began = time.monotonic()
    for config in space.configs():
        chosen = (config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"], config["NUM_WARPS"],
                  config["NUM_STAGES"])
        try:
            ms = triton.testing.do_bench(lambda chosen=chosen: module.launch(a, b, c, *chosen))
            row = {"config": config, "us": float(ms) * 1e3}
        except Exception as error:
            row = {"config": config, "us": None, "why": str(error)[:200]}
        print(json.dumps(row), flush=True)
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)


def compile_only(arch: str, workers: int | None, limit: int, python: str | None) -> None:
    """Compile the space ahead of time on this machine, which needs no GPU; prints what it took."""
    place = Place(device="cuda:0", scratch="", python=python)
    zygote = warm_zygote(place)
    configs = space.configs()[:limit] if limit else space.configs()
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
        tree = Path(space.write(Path(name) / "tree"))
        with Ahead(space.task(), tree, arch, Path(name) / "ahead", workers=workers, python=python,
                   zygote=zygote) as ahead:
            began, used = time.monotonic(), os.times()
            keys = [ahead.expect(space.source(config)) for config in configs]
            found = [ahead.get(key) for key in keys]
            seconds = time.monotonic() - began
            again = time.monotonic()
            hit = (
                triton_aot.inspected(
                    space.task(),
                    tree,
                    arch,
                    ahead.scratch / keys[0],
                    cached=True,
                    python=python,
                    zygote=zygote,
                )
                if configs
                else None
            )
            again = time.monotonic() - again
        fits = [one for one in found if not one.error and not one.reasons]
        card = datasheets.find_by_short_name("h200")
        ranked = cost_model.rank(space.task(), {n: one.resources for n, one in enumerate(found)
                                                if not one.error}, card) \
            if card is not None and card.arch == arch else ()
    zygote.close()
    print(json.dumps({
        "configs": len(configs), "workers": ahead.workers, "seconds": round(seconds, 2),
        "each_s": round(median(one.wall_s for one in found), 3),
        "parent_cpu_s": round(sum(os.times()[:2]) - sum(used[:2]), 2),
        "compiled": len(fits), "not_launchable": sum(bool(one.reasons) for one in found),
        "errors": sorted({one.error for one in found if one.error})[:3],
        "a_cached_one_s": round(again, 3) if hit else None, "load": os.getloadavg()[0],
        "predicted_best": [configs[one.key] for one in ranked[:3]],
        "no_stubs": ahead.no_stubs[:100]}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--python")
    parser.add_argument("--one-by-one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_by_one:
        one_by_one(given.one_by_one)
        return
    if given.compile_only:
        compile_only(given.arch, given.workers, given.limit, given.python)
        return
    word = machine.card().name.lower().replace("nvidia ", "").replace(" ", "-")
    machine.RESULTS.mkdir(exist_ok=True)
    bench = Bench(given.out or machine.RESULTS / f"throughput-{word}-"
                  f"{time.strftime('%Y-%m-%d')}.jsonl")
    bench.keep("machine", **machine.describe(), versions=machine.gpu_versions(),
               device=to_builtins(bench.device), cores=len(os.sched_getaffinity(0)))
    parts: dict[str, Callable[[], None]] = {name: getattr(bench, name) for name in PARTS}
    for name in given.parts:
        try:
            parts[name]()
        except Exception:  # the other parts are worth their device time all the same
            bench.keep("failed", of=name, error=traceback.format_exc()[-1500:])
    bench.zygote.close()


if __name__ == "__main__":
    main()

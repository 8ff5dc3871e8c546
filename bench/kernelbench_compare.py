"""Times eager, torch.compile and the rewrite of prepared problems in turns, on one GPU.

    python bench/kernelbench_compare.py OUT SECONDS PROBLEM...

Called by bench/kernelbench.py. All three run in one process on the same inputs and weights, without
gradients. A round times a block of calls of each by CUDA events, the sides in changing order; the
interval is the 95 % one of the mean log-ratio of ROUNDS rounds. A first call, with compilation and
kernels' own tuning, is not timed. One process per problem: AT_ONCE of them compile together, then
one after the other measures alone.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness.child.oracle.arrays_torch import TorchArrays
from harness.child.oracle.inputs import draw
from harness.formats.json_codec import convert, to_builtins
from harness.tasks.target import Target

ROUNDS, BLOCK_MS, MOST_CALLS = 9, 12.0, 200
T_95 = 2.306
"""Student's t of a two-sided 95 % interval, for ROUNDS - 1 degrees of freedom."""
AT_ONCE = 12
PROBLEM_S, BATCH_S = 150.0, 60.0


def load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def inputs(target: Target, device: str) -> dict[str, Any]:
    """Return a normal random tensor for each argument in the first class, drawn as in a verdict."""
    arrays = TorchArrays(device, folder=tempfile.gettempdir())
    return {tensor.name: arrays.to_native(
        draw(arrays, to_builtins(tensor), seed, "normal"), tensor.dtype).reshape(tensor.shape)
        for seed, tensor in enumerate(target.tensors(target.classes[0]))}


def sides(home: Path, facts: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the three models by side, and a function that calls the model of a side."""
    import torch

    adapter = load(home / "base" / "kopt_task" / "adapter.py", "adapter")
    given = inputs(convert(facts["target"], Target), "cuda")
    weights = [given[name] for name in adapter.WEIGHTS]
    positional = [value for name, value in given.items() if name not in adapter.WEIGHTS]
    modules: dict[str, Any] = {}
    arguments: list[Any] = []

    def make_model(module: Any) -> Any:
        """Return a module's model as the adapter makes it, with our weights; note its arguments."""
        kind = getattr(module, "ModelNew", None) or module.Model
        own = type("ModelNew", (kind,), {"forward": lambda self, *args: arguments.append(args)})
        holder = type("Holder", (), {"ModelNew": own, "Model": module.Model})
        try:
            adapter.call(holder, *positional, *weights)
        except Exception:
            assert arguments
        made = adapter.objects.popitem()[1]
        made.__class__ = kind
        for name, value in zip(adapter.WEIGHTS, weights, strict=True):
            owner, _, last = name.rpartition(".")
            place = made.get_submodule(owner)
            store = place._parameters if last in place._parameters else place._buffers
            store[last] = torch.nn.Parameter(value.clone(), requires_grad=False) \
                if last in place._parameters else value.clone()
        return made

    modules["eager"] = make_model(load(home / "base" / facts["source"], "eager"))
    modules["rewrite"] = make_model(load(home / "candidate" / facts["source"], "rewrite"))
    modules["compiled"] = torch.compile(
        make_model(load(home / "base" / facts["source"], "compiled")))
    return modules, lambda side: modules[side](*arguments[0])


def compare(home: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the latencies in us, and the speedups of the rewrite with their intervals."""
    import torch

    with torch.no_grad():
        modules, call = sides(home, facts)
        began = time.monotonic()
        results = {}
        for side in modules:
            value = call(side)
            results[side] = next(iter(value)) if isinstance(value, list | tuple) else value
        torch.cuda.synchronize()
        compile_s = time.monotonic() - began
        print("ready", flush=True)
        sys.stdin.readline()  # wait until this process may use the card alone
        calls = {}
        for side in modules:
            call(side)
            calls[side] = max(1, min(MOST_CALLS, math.ceil(BLOCK_MS / block(call, side, 3))))
        logs: dict[str, list[float]] = {side: [] for side in modules}
        order = list(modules)
        for number in range(ROUNDS):
            for side in order[number % 3:] + order[:number % 3]:
                logs[side].append(math.log(1e3 * block(call, side, calls[side])))
    answer: dict[str, Any] = {f"{side}_us": math.exp(sum(values) / ROUNDS)
                              for side, values in logs.items()}
    for other, name in (("eager", "over_eager"), ("compiled", "over_compile")):
        ratios = [one - two for one, two in zip(logs[other], logs["rewrite"], strict=True)]
        mean = sum(ratios) / ROUNDS
        half = T_95 * math.sqrt(sum((r - mean) ** 2 for r in ratios) / (ROUNDS - 1) / ROUNDS)
        answer |= {name: math.exp(mean), f"{name}_low": math.exp(mean - half),
                   f"{name}_high": math.exp(mean + half)}
    scale = results["eager"].float().abs().mean().item() or 1.0
    away = (results["rewrite"].float() - results["eager"].float()).abs().max().item()
    return answer | {"largest_difference": away / scale, "compile_s": round(compile_s, 1),
                     "card": torch.cuda.get_device_name()}


def block(call: Any, side: str, calls: int) -> float:
    """Return the mean milliseconds of a call, over a block of `calls`."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(calls):
        call(side)
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / calls


def one(output: Path, problem: str) -> None:
    """Measure one problem in this process; print its line."""
    lines = (output / "problems.jsonl").read_text().splitlines()
    facts = {line["problem"]: line for line in map(json.loads, lines)}[problem]
    try:
        answer = compare(output / "problems" / problem, facts)
    except Exception as error:
        answer = {"why": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}
    print(json.dumps({"problem": problem, "knobs": facts.get("knobs"), **answer}), flush=True)


def batch(output: Path, problems: list[str]) -> None:
    """Compile some problems in parallel; once all are ready, measure one after the other."""
    children, timers = [], []
    for name in problems:
        child = subprocess.Popen([sys.executable, __file__, str(output), "0", name], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        children.append(child)
        timers.append(threading.Timer(PROBLEM_S, child.kill))
        timers[-1].start()
    lines = [child.stdout.readline() for child in children if child.stdout]
    for name, child, line in zip(problems, children, lines, strict=True):
        if line.strip() == "ready":
            line, _ = child.communicate("go\n")
        else:
            child.kill()
            child.communicate()
        if not line.startswith("{"):
            line = json.dumps({"problem": name, "why": f"ended with {child.returncode}"})
        with (output / "compared.jsonl").open("a") as file:
            file.write(line.strip() + "\n")
        print(line.strip(), flush=True)
    for timer in timers:
        timer.cancel()


def main() -> None:
    output, seconds, problems = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    if len(problems) == 1 and seconds == 0:
        return one(output, problems[0])
    end = time.monotonic() + seconds
    for first in range(0, len(problems), AT_ONCE):
        if time.monotonic() + BATCH_S < end:
            batch(output, problems[first:first + AT_ONCE])
    return None


if __name__ == "__main__":
    main()

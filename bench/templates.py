"""Check the Triton templates on a GPU, and time them beside PyTorch and a plain copy.

    python bench/templates.py [--out FOLDER] [--only NAME ...] [--case TEXT] [--seconds 440]
                              [--search 12]
    python bench/templates.py [--out FOLDER] [--only NAME ...] [--case TEXT] --table
    python bench/templates.py [--out FOLDER] [--only NAME ...] --cpu

Each template runs at its bench shapes: its result is compared with one in float64; then it is timed
with its knobs' default values and with the best of a short search. Also timed: PyTorch's own call
and, if memory bounds the template, a copy of as many bytes as the call must move. All times are
medians of GPU events, with a cold cache. A case that FOLDER/templates.jsonl has for the same source
is not repeated: call the script again to continue.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if "--cpu" in sys.argv:  # before anything loads numpy
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import machine
import torch

from bench.template_cases import FOLDER, arguments, chosen, error, load, reference
from harness.search.space.tunable_source import TunableSource

FLUSHED_BYTES = 256 * 2**20


def timed(call: Callable[[], Any], repeats: int = 15) -> float:
    """Return the median time of a call in microseconds, each with a cold cache."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    call()
    pairs = []
    for _ in range(repeats):
        flushed.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) for begin, end in pairs) * 1e3


def moved(values: Any) -> int:
    """Return how many bytes all tensors among some values have."""
    if torch.is_tensor(values):
        return values.numel() * values.element_size()
    if isinstance(values, dict):
        values = list(values.values())
    return sum(map(moved, values)) if isinstance(values, list | tuple) else 0


def copied(size: int) -> float:
    """Return the time of a copy that reads and writes `size` bytes in all."""
    source = torch.empty(max(size // 2, 16), dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return timed(lambda: target.copy_(source))


def search(module: Any, source: TunableSource, call: Callable[[], Any], first_us: float,
           seconds: float) -> tuple[dict[str, Any], float]:
    """Try each knob's choices in turn; return the best, set in `module`, and its time."""
    end = time.monotonic() + seconds
    best = {knob.name: knob.value for knob in source.knobs}
    best_us = first_us

    def apply(config: dict[str, Any]) -> None:
        for name, value in config.items():
            setattr(module, name, value)

    for _ in range(2):
        before = dict(best)
        for knob in source.knobs:
            for value in knob.choices:
                config = {**best, knob.name: value}
                if time.monotonic() > end or value == best[knob.name] or \
                        source.check(config).refusal:
                    continue
                apply(config)
                try:
                    spent_us = timed(call, 5)
                    if spent_us < best_us * 0.995:
                        spent_us = timed(call)
                except Exception as failure:  # a choice that the card cannot run
                    print(f"  {knob.name}={value}: {type(failure).__name__}", flush=True)
                    continue
                if spent_us < best_us * 0.995:
                    best, best_us = config, spent_us
        if best == before:
            break
    apply(best)
    return best, timed(call)


def measure(template: dict[str, Any], case: str, search_s: float) -> dict[str, Any]:
    dtype = getattr(torch, template.get("bench_dtype", "float32"))
    module = load(FOLDER / template["file"])
    entry = getattr(module, template["entry"])
    torch.manual_seed(0)
    given = arguments(entry, case, dtype, "cuda")
    result = entry(**given)
    size = eval(template["moved"], dict(given)) if "moved" in template else \
        moved(given) + moved(result)
    first = result if torch.is_tensor(result) else result[0]
    dtype_of = str(first.dtype).removeprefix("torch.")
    away = error(template, given, result, reference(template, given))
    names = {**given, "torch": torch, "results": first.numel()}
    del result, first
    bound = template["bound"]
    row: dict[str, Any] = {"dtype": dtype_of, "error": round(away, 4)}
    if away > 1:
        return row
    row["default_us"] = timed(lambda: entry(**given))
    row["torch_us"] = timed(lambda: reference(template, given, wide=False))
    if bound == "memory":
        row["copy_us"] = copied(size)
    text = (FOLDER / template["file"]).read_text()
    source = TunableSource.parse(text, language="triton", path=template["file"])
    best, row["us"] = search(module, source, lambda: entry(**given), row["default_us"], search_s)
    row["config"] = {knob.name: best[knob.name] for knob in source.knobs
                     if best[knob.name] != knob.value}
    after = error(template, given, entry(**given), reference(template, given))
    row["error"] = round(max(away, after), 4)
    if bound != "memory":
        row["tflops"] = round(eval(bound, names) / row["us"] / 1e6, 1)
    row["vs_torch"] = round(row["torch_us"] / row["us"], 3)
    row["of_goal"] = round(row.get("copy_us", row["torch_us"]) / row["us"], 3)
    return {name: round(value, 2) if name.endswith("_us") or name == "us" else value
            for name, value in row.items()}


def show(rows: list[dict[str, Any]], asked: list[tuple[dict[str, Any], list[str]]]) -> None:
    """Print a table of the asked cases' rows, and how many of each template reach their goal."""
    print("| template | case | dtype | us | default us | torch us | x torch | of copy or library |")
    print("|---|---|---|---|---|---|---|---|")
    keys = {(template["name"], case) for template, cases in asked for case in cases}
    latest = {key: row for row in rows if (key := (row["template"], row["case"])) in keys}
    for row in latest.values():
        if "us" not in row:
            print(f"| {row['template']} | `{row['case']}` | {row.get('dtype', '')} | "
                  f"{row.get('failed') or 'wrong: ' + str(row['error'])} | | | | |")
            continue
        print(f"| {row['template']} | `{row['case']}` | {row['dtype']} | {row['us']} | "
              f"{row['default_us']} | {row['torch_us']} | {row['vs_torch']} | {row['of_goal']} |")
    for template, cases in asked:
        measured = [row for case in cases
                    if "us" in (row := latest.get((template["name"], case), {}))]
        goal, missing = template.get("goal", 0.9), len(cases) - len(measured)
        older = sum(row["source"] != _source(template) for row in measured)
        print(f"{template['name']}: {sum(row['of_goal'] >= goal for row in measured)} of "
              f"{len(cases)} shapes reach {goal:.0%}"
              + (f", {missing} not measured" if missing else "")
              + (f", {older} measured with another source" if older else ""))


def _source(template: dict[str, Any]) -> str:
    return hashlib.sha256((FOLDER / template["file"]).read_bytes()).hexdigest()[:12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=machine.RESULTS / "templates")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--case", default="", help="only cases with this text or dtype: fp8")
    parser.add_argument("--seconds", type=float, default=440, help="start no case after these")
    parser.add_argument("--search", type=float, default=12, help="seconds of search a case")
    parser.add_argument("--table", action="store_true", help="print what was measured")
    parser.add_argument("--cpu", action="store_true", help="the C templates, on this processor")
    options = parser.parse_args()
    if options.cpu:
        import c_templates

        c_templates.run(options.out, options.only, options.seconds, options.search)
        return 0
    began = time.monotonic()
    log = options.out / "templates.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    try:
        asked = chosen(options.only, options.case)
    except ValueError as failure:
        parser.error(str(failure))
    if options.table:
        show(rows, asked)
        return 0
    device = machine.card().name
    options.out.mkdir(parents=True, exist_ok=True)
    done = {(row["template"], row["case"], row["source"]) for row in rows if "us" in row}
    for template, cases in asked:
        source = _source(template)
        for case in cases:
            key = (template["name"], case, source)
            if key in done:
                continue
            if time.monotonic() - began > options.seconds:
                print("out of time: call again", flush=True)
                return 0
            try:
                row = measure(template, case, options.search)
            except Exception as failure:
                row = {"failed": f"{type(failure).__name__}: {str(failure)[:200]}"}
            torch.cuda.empty_cache()
            row = dict(zip(("template", "case", "source"), key, strict=True)) | row | {
                "device": device, "torch": torch.__version__}
            rows.append(row)
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    show(rows, asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())

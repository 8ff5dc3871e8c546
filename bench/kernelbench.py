"""KernelBench without a model: compare kopt's template rewrites with eager and torch.compile.

    python bench/kernelbench.py FOLDER --output OUT [--only TEXT ...] [--seconds 530] [--search N]

FOLDER has level1/ and level2/ of KernelBench, or any files of that form, such as bench/modules.
There are three steps; each continues where an earlier call stopped. Without a GPU nothing is
compared, and Triton's interpreter runs small sizes:
1. prepare: writes each problem's task, as `kopt new` drafts it, and its rewrite to OUT/problems.
   Needs no GPU. If a call of a problem moves more than --bytes, its batch (or another size) is
   halved until it does not; the table names such sizes.
2. compare: eager, torch.compile (default mode) and the rewrite in turns in one process, to
   OUT/compared.jsonl; see bench/kernelbench_compare.py. These are the table's speedups. With
   --search N, rewrites that are not surely faster than both get the best of N configurations of
   their knobs, as `kopt loop` finds them, and are compared again: the slowest first.
3. verdict: kopt's own verdict of the rewrite against eager, to OUT/verdicts.jsonl: whether it is
   correct. With --looks 3 or more pairs of processes it has a speedup with an interval as well.
The table of both levels, with fast_p as KernelBench prints it, goes to OUT/table.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelbench_table
from kernelbench_problems import CONVOLUTIONS, LEVELS, chosen, name_of

from harness.compile.place import kind_of, place_on
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import KoptError
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import convert, to_builtins
from harness.formats.text import plain
from harness.isolation.zygote_client import Zygote
from harness.loop.loop import loop
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.timing.plan import Plan

BYTES = 1 << 29
VERDICT_S = {"cpu": 400.0}
"""Limit of a verdict by kind of device (90 on a GPU), times the GiB a call moves if over 1."""
ALPHA = 0.001
SEARCH_LEFT_S = 75.0
"""No search starts with less of --seconds left: the second comparison needs this much."""


def prepare(file: Path, home: Path, most_bytes: int, small: bool, prefer: str,
            zygote: Zygote) -> dict[str, Any]:
    """Write the trees of one problem below `home`; return its description."""
    from engine.discovery.module import draft_module, problem_facts
    from engine.rewrites import module_rewrite
    from engine.verify import reference_forms

    shutil.rmtree(home, ignore_errors=True)
    base = home / "base"
    base.mkdir(parents=True)
    shutil.copy(file, base / file.name)
    facts: dict[str, Any] = {"problem": name_of(file), "source": file.name, "sizes": {}}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            sizes: dict[str, problem_facts.Size] = {}
            if not small:
                sizes = fitting(base / file.name, Path(scratch), most_bytes, zygote)
            draft = draft_module.draft(base, file.name, "kopt_task", Path(scratch), sizes=sizes,
                                       small=small, zygote=zygote)
            for name, text in draft.files.items():
                (base / name).parent.mkdir(exist_ok=True)
                (base / name).write_text(text)
            facts |= {"target": to_builtins(draft.target), "sizes": sizes}
            found = module_rewrite.find(draft.target, base, base, Path(scratch), zygote=zygote)
        except KoptError as error:
            return facts | {"matched": False, "why": str(error)}
    if not found.rewrites:
        return facts | {"matched": False, "why": found.nothing}
    rewrite = next((each for each in found.rewrites if each.name == prefer), found.rewrites[0])
    for side, text in (("candidate", rewrite.source.encode()), (
            "compiled", reference_forms.FORMS[0].source((base / file.name).read_bytes()))):
        shutil.copytree(base, home / side)
        (home / side / file.name).write_bytes(text)
    return facts | {"matched": True, "why": rewrite.hypothesis}


def fitting(file: Path, scratch: Path, most_bytes: int, zygote: Zygote) -> dict[str, Any]:
    """Return a size by name, preferably the batch, with which a call moves about `most_bytes`.

    Halving the size must save more than a quarter of the bytes. Return {} if that holds for no
    size, for example because most bytes are weights, or if the problem's own sizes fit.
    """
    from engine.discovery.module import problem_facts

    def learn(sizes: dict[str, Any]) -> problem_facts.ModuleFacts:
        return problem_facts.learn(file, scratch, sizes=sizes, small=False, training=None,
                                   zygote=zygote)

    facts = learn({})
    if facts.bytes <= most_bytes:
        return {}
    for name in sorted(facts.sizes, key=lambda each: "batch" not in each):
        own = facts.sizes[name]
        try:
            ratio = facts.bytes / learn({name: max(1, own // 2)}).bytes
        except KoptError:  # its inputs do not fit each other at other sizes
            continue
        if ratio > 4 / 3:
            steps = math.ceil(math.log(facts.bytes / most_bytes) / math.log(ratio))
            return {name: max(1, own // 2**steps)}
    return {}


@contextmanager
def workplace(target: Target, device: Device,
              zygotes: dict[str, Zygote]) -> Iterator[tuple[str, Zygote | None]]:
    """Yield a scratch folder and the zygote for a target, which later targets share; or None."""
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as scratch:
        place = place_on(device, target.language, scratch=scratch, python=None, env={},
                         has_triton=True)
        kind = kind_of(place, target.language)
        if kind is not None and kind.name not in zygotes:
            zygotes[kind.name] = Zygote.start(kind)
        yield scratch, zygotes[kind.name] if kind else None


def verdict(home: Path, facts: dict[str, Any], device: Device, zygotes: dict[str, Zygote],
            looks: int) -> dict[str, Any]:
    """Return kopt's verdict on a problem's rewrite, with its seconds."""
    target = convert(facts["target"], Target)
    began, stop = time.monotonic(), threading.Event()
    limit_s = VERDICT_S.get(device.kind, 90.0) * max(1.0, facts["target"]["bytes"] / (1 << 30))
    timer = threading.Timer(limit_s, stop.set)
    timer.start()
    plan = replace(Plan(alpha=ALPHA).with_effort("quick"), looks=(looks,))
    trees = Trees(candidate=str(home / "candidate"), incumbent=str(home / "base"),
                  reference=str(home / "base"))
    try:
        with workplace(target, device, zygotes) as (scratch, zygote):
            judged = evaluate(target, trees, device, Settings(scratch=scratch, plan=plan),
                              cancel=stop, zygote=zygote)
    except KoptError as error:
        late = f"more than {limit_s:.0f} s" if stop.is_set() else str(error)
        return {"correct": False, "why": late, "seconds": time.monotonic() - began}
    finally:
        timer.cancel()
    row = judged.rows[0] if judged.rows else None
    why = judged.rejected_reason or (row.note if row is not None and not row.correct else "")
    return {"correct": judged.correct, "why": plain(why or "", 300),
            "latency_us": judged.latency_us,
            "incumbent_us": row.incumbent_us if row else None, "speedup": judged.speedup,
            "low": judged.speedup_low, "high": judged.speedup_high,
            "error_budget_used": judged.error_budget_used,
            "audit": [f"{each.severity}: {each.rule}: {each.detail}"[:200]
                      for each in judged.audit],
            "notes": [note[:300] for note in judged.notes],
            "seconds": round(time.monotonic() - began, 1)}


def search(home: Path, facts: dict[str, Any], device: Device, zygotes: dict[str, Zygote],
           trials: int) -> dict[str, Any]:
    """Write the best of `trials` configurations into a problem's rewrite; return its new facts."""
    target, own = convert(facts["target"], Target), home / "candidate" / facts["source"]
    found: dict[str, Any] = {"searched": trials}
    try:
        with workplace(target, device, zygotes) as (scratch, zygote):
            job = SearchJob(tree=str(home / "candidate"), reference=str(home / "base"),
                            budget=trials, record=str(home / "loop"))
            result = loop(target, job, device, Settings(scratch=scratch), zygote=zygote)
    except KoptError as error:
        return facts | found | {"no_search": str(error)}
    if result.source != own.read_text():
        own.write_text(result.source)
        found["knobs"] = result.best
    return facts | found


def recorded(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each problem."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["problem"]: line for line in map(json.loads, lines)}


def add(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print({key: value for key, value in line.items() if key != "target"}, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--only", nargs="*", default=[],
                        help="texts: take the problems whose level1/NAME contains one of them")
    parser.add_argument("--steps", nargs="*", default=["prepare", "compare", "verdict"])
    parser.add_argument("--seconds", type=float, default=530.0)
    parser.add_argument("--looks", type=int, default=1, help="process pairs of each verdict")
    parser.add_argument("--bytes", type=int, default=BYTES,
                        help="the most bytes that a call of a problem may move")
    parser.add_argument("--again", action="store_true", help="repeat problems that have a result")
    parser.add_argument("--search", type=int, default=0,
                        help="configurations that a search tries for each slow rewrite (0: none)")
    parser.add_argument("--prefer", default="",
                        help="the name of the rewrite to take if a problem has several")
    parser.add_argument("--convolutions", action="store_true",
                        help="take the problems of CONVOLUTIONS instead of those of LEVELS")
    args = parser.parse_args()
    levels: dict[str, tuple[int, ...] | None] = {args.folder.resolve().name: None}
    if (args.folder / "level1").is_dir():
        levels = {**(CONVOLUTIONS if args.convolutions else LEVELS)}
    end = time.monotonic() + args.seconds
    cards = [each for each in inventory.inventory() if each.kind != "cpu" and not each.unusable]
    device = cards[0] if cards else inventory.find("cpu")
    args.output.mkdir(parents=True, exist_ok=True)
    prepared = args.output / "problems.jsonl"
    if "prepare" in args.steps:
        files = chosen(args.folder, args.only, levels)
        before = {} if args.again else recorded(prepared)

        place = place_on(inventory.find("cpu"), "python", scratch="", python=None, env={})
        kind, own = kind_of(place, "python"), threading.local()
        assert kind is not None

        def one(file: Path) -> None:
            if time.monotonic() < end:
                if not hasattr(own, "zygote"):
                    own.zygote = Zygote.start(kind)
                add(prepared, prepare(file, args.output / "problems" / name_of(file), args.bytes,
                                      not cards and "full" not in args.steps, args.prefer,
                                      own.zygote))

        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as workers:
            list(workers.map(one, [file for file in files if name_of(file) not in before]))
    problems = {name: facts for name, facts in recorded(prepared).items()
                if not args.only or any(text in name for text in args.only)}
    verdicts, compared = args.output / "verdicts.jsonl", args.output / "compared.jsonl"
    zygotes: dict[str, Zygote] = {}

    def due(path: Path, *, again: bool) -> list[str]:
        """Return the problems without a result for the knobs that their rewrites have now."""
        known = recorded(path)
        return [name for name, facts in problems.items() if facts["matched"] and (
            again or name not in known or known[name].get("knobs") != facts.get("knobs"))]

    def compare(*, again: bool) -> None:
        left = due(compared, again=again) if "compare" in args.steps and cards else []
        if left and end - time.monotonic() > 10:
            subprocess.run([sys.executable, str(Path(__file__).with_name("kernelbench_compare.py")),
                            str(args.output), str(end - time.monotonic()), *left], check=False)

    compare(again=args.again)
    lows = {name: min(line.get("over_eager_low") or 0.0, line.get("over_compile_low") or 0.0)
            for name, line in recorded(compared).items()}
    for name in sorted(lows, key=lows.__getitem__) if args.search else ():
        facts = problems.get(name, {})
        if facts.get("matched") and facts.get("searched", 0) < args.search and lows[name] <= 1 \
                and end - time.monotonic() > SEARCH_LEFT_S:
            problems[name] = search(args.output / "problems" / name, facts, device, zygotes,
                                    args.search)
            add(prepared, problems[name])
    compare(again=False)
    for name in due(verdicts, again=args.again) if "verdict" in args.steps else ():
        if time.monotonic() < end:
            add(verdicts, {"problem": name, "device": device.name,
                           "knobs": problems[name].get("knobs"), **verdict(
                               args.output / "problems" / name, problems[name], device, zygotes,
                               args.looks)})
    for zygote in zygotes.values():
        zygote.close()
    text = kernelbench_table.table(levels, problems, recorded(verdicts), recorded(compared))
    (args.output / "table.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

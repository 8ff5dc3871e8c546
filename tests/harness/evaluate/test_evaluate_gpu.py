"""Kernels on a real GPU get the right verdict; skipped without one."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import inventory
from harness.devices.device import Device
from harness.devices.monitoring import telemetry_sources
from harness.devices.monitoring.telemetry_sources import ONE_PROCESS, SharingMode
from harness.evaluate.evaluate import evaluate
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.loop.loop import loop
from harness.loop.screen_methods import TurnScreening
from harness.loop.screening import Screening
from harness.search.space import knobs
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import load
from harness.timing.plan import Plan
from harness.verdict import Value
from tests.support.kernels.kernel_case import DOUBLE, HEAD, judge, target, tree
from tests.support.paths import EXAMPLES
from tests.support.programs.processes import until

pytestmark = pytest.mark.gpu
TUNED: dict[str, Value] = {"VARIANT": "whole", "BLOCK": 4096, "PER_THREAD": 16}
QUICK = Plan(looks=(4, 6), alpha=0.05)
SIZES = 64, 256, 1024
KNOBBED_MODULE = "SIZE = 64  # kopt: knob SIZE in [64, 256, 1024]\n" + DOUBLE.replace(
    "n, 64),)](x, out, n)", "n, SIZE),)](x, out, n, BLOCK=SIZE)") + """
class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double(x + 0.0, out)
        return out
"""


def card() -> Device:
    return next(d for d in inventory.inventory() if d.kind != "cpu" and not d.unusable)


def big(**fields: object) -> Target:
    return target(classes=(ConfigClass(name="big", shape={"n": 1 << 24}),
                           ConfigClass(name="odd", shape={"n": 999_999})), **fields)


def softmax(folder: Path, config: dict[str, Value], comment: str = "") -> Trees:
    example = EXAMPLES / "softmax_triton"
    source = knobs.read(example / "kernel.py")
    changed = knobs.apply(source, config, language="triton") + comment
    reference = (example / "reference.py").read_text()
    return Trees(candidate=tree(folder / "candidate", changed, reference),
                 incumbent=str(example), reference=str(example))


def test_faster_kernel_is_measured_as_faster(tmp_path: Path) -> None:
    task = load(EXAMPLES / "softmax_triton" / "task.yaml")
    verdict = evaluate(task, softmax(tmp_path, TUNED), card(),
                       Settings(scratch=str(tmp_path / "scratch"), plan=QUICK))
    assert verdict.valid and verdict.correct, verdict
    assert verdict.latency_kind == "measured-gpu"
    assert verdict.speedup is not None and verdict.speedup > 1.5
    faster = {row.config_class for row in verdict.rows if row.outcome == "faster"}
    assert faster >= {"tall", "square", "wide", "widest"}, verdict
    for row in verdict.rows:  # odd is shorter than a launch, which may hide its gain
        assert row.outcome == "faster" or ", but call time" in row.note, row
    launches = [entry.detail for entry in verdict.evidence if entry.kind == "launch"]
    assert all("graphs of" in detail or "no graph: a call takes more than 500 us" in detail
               for detail in launches) and any("graphs of" in detail for detail in launches), \
        launches
    assert verdict.floor_us is None or verdict.floor_us < (verdict.latency_us or 0.0)


def test_identical_code_is_not_faster(tmp_path: Path) -> None:
    task = load(EXAMPLES / "softmax_triton" / "task.yaml")
    verdict = evaluate(task, softmax(tmp_path, {}, "# the same\n"), card(),
                       Settings(scratch=str(tmp_path / "scratch"), plan=QUICK))
    assert verdict.correct
    assert "faster" not in {row.outcome for row in verdict.rows}
    assert abs((verdict.speedup or 0.0) - 1.0) < 0.02


BROKEN = {
    "wrong": (DOUBLE.replace("2 *", "3 *"), None),
    "lazy": (HEAD + "def double(x, out):\n    out[:-1].copy_(2 * x[:-1])\n", None),
    "far out of bounds": (DOUBLE.replace("out + at", "out + at + (1 << 40)"), "illegal memory"),
    "just out of bounds": (DOUBLE.replace("mask=at < n)\n\n", "mask=at < n + 5)\n\n"),
                           "wrote past the end of out"),
    "does not compile": (DOUBLE.replace("2 * tl.load", "no_such_name * tl.load"), "no_such_name"),
    "too much shared memory": (HEAD + '''
@triton.jit
def big_kernel(x, out):
    row, at = tl.arange(0, 128), tl.arange(0, 512)
    tile = tl.load(x + row[:, None] * 512 + at[None, :])
    tl.store(out + row[:, None] * 128 + row[None, :], tl.dot(tile, tile.trans()))

def double(x, out):
    big_kernel[(1,)](x, out)
''', "shared memory"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel_is_a_verdict(tmp_path: Path, name: str) -> None:
    source, reason = BROKEN[name]
    verdict = judge(tmp_path, source, of=big(), device=card().id)
    assert not verdict.correct and verdict.latency_us is None
    assert verdict.valid == (reason is None), verdict
    assert (reason or "") in (verdict.rejected_reason or ""), verdict


def test_kernel_with_much_memory_of_its_own_is_timed_in_one_pair_at_a_time(tmp_path: Path) -> None:
    device = card()
    assert device.memory_bytes is not None
    size = int(0.18 * device.memory_bytes)
    own = DOUBLE.replace("    n = x.numel()\n", "    n = x.numel()\n    workspace = torch.empty("
                         f"{size}, dtype=torch.uint8, device=x.device)\n")
    assert own != DOUBLE
    verdict = judge(tmp_path, own, own + "# the same\n", of=big(), device=device.id)
    assert verdict.valid and verdict.correct and verdict.latency_us, verdict


def test_slots_leave_room_for_what_calls_return(tmp_path: Path) -> None:
    kept = HEAD + DOUBLE.removeprefix(HEAD).replace("def double(x, out):\n", (
        "def double(x):\n    out = torch.empty_like(x)\n")) + "    return out\n"
    verdict = judge(tmp_path, kept, kept + "# the same\n", device=card().id, of=target(
        args=(Arg(name="x", dtype="float32", shape=("n",)),), returns=True,
        classes=(ConfigClass(name="big", shape={"n": 1 << 26}),
                 ConfigClass(name="small", shape={"n": 1 << 25}))))
    assert verdict.valid and verdict.correct and verdict.latency_us, verdict


def test_bfloat16_made_by_the_kernel_is_right_on_a_gpu(tmp_path: Path) -> None:
    source = DOUBLE.replace("2 * tl.load(x + at, mask=at < n)",
                            "(2 * tl.load(x + at, mask=at < n).to(tl.float32)).to(tl.bfloat16)")
    verdict = judge(tmp_path, source, of=big(dtype="bfloat16"), device=card().id, plan=QUICK)
    assert verdict.correct and verdict.latency_kind == "measured-gpu", verdict


def test_uncapturable_calls_are_launched_one_by_one(tmp_path: Path) -> None:
    source = DOUBLE + "    torch.cuda.synchronize()\n"
    verdict = judge(tmp_path, source, of=big(), device=card().id, plan=QUICK)
    assert verdict.correct and verdict.latency_us, verdict
    assert any("one by one" in entry.detail for entry in verdict.evidence)


def test_calls_that_the_host_launches_slowly_are_timed_by_graphs(tmp_path: Path) -> None:
    source = DOUBLE + "inner = double\ndef double(x, out):\n    part = x[:8]\n" \
        "    for _ in range(300): part = part.add(1.0)\n    inner(x, out)\n"
    verdict = judge(tmp_path, source, of=big(), device=card().id, plan=QUICK)
    assert verdict.correct and verdict.latency_us, verdict
    assert all("graphs of" in entry.detail for entry in verdict.evidence if entry.kind == "launch")


def test_returned_tensors_are_measured(tmp_path: Path) -> None:
    of = big(language="python", returns=True, return_dtypes=("float32",),
             args=(Arg(name="x", dtype="float32", shape=("n",)),))
    verdict = judge(tmp_path, "def double(x):\n    return x * 2\n",
                    "def double(x):\n    return x.clone() + x.clone()\n", of=of,
                    device=card().id, plan=QUICK)
    assert verdict.correct, verdict
    assert verdict.speedup is not None and verdict.speedup > 1.2, verdict


def test_calls_that_do_nothing_while_timed_are_caught(tmp_path: Path) -> None:
    source = DOUBLE + "done = 0\ninner = double\ndef double(x, out):\n    global done\n" \
        "    done += 1\n    if done < 4: inner(x, out)\n"
    verdict = judge(tmp_path, source, of=big(), device=card().id, plan=QUICK)
    assert not verdict.valid and not verdict.correct and verdict.latency_us is None


def test_gpu_works_inside_a_confined_process(tmp_path: Path) -> None:
    code = ("import glob, os, torch\nx = torch.ones(8, device='cuda').sum().item()\n"
            "try:\n  open('/etc/kopt-was-here', 'w')\nexcept OSError: print('confined', x)\n"
            "for path in glob.glob('/dev/nvidia[0-9]*'):\n"
            "  try: print(os.path.basename(path) if os.open(path, os.O_RDWR) else '')\n"
            "  except OSError: pass")
    assert card().nodes
    with device_lock.acquire(card().lock_name) as held:
        outcome = guard.run([sys.executable, "-c", code], cwd=tmp_path,
                            env=guard.clean_env(card().visible_env, home=tmp_path),
                            limits=Limits(wall_s=60.0), lock=held,
                            confine=Confine(writable=(str(tmp_path),), nodes=card().nodes,
                                            required=True))
    assert outcome.stdout.decode() == f"confined 8.0\n{card().nodes[0]}\n", outcome


@pytest.mark.parametrize("cards", [True, False])
def test_compiling_process_cannot_open_the_card(cards: bool, tmp_path: Path) -> None:
    code = "import os\ntry:\n  os.open('/dev/nvidiactl', os.O_RDWR)\nexcept OSError: print('no')"
    outcome = guard.run([sys.executable, "-c", code], cwd=tmp_path, limits=Limits(wall_s=60.0),
                        confine=Confine(writable=(str(tmp_path),), cards=cards, required=True))
    assert outcome.stdout == (b"" if cards else b"no\n"), outcome


def test_loop_finds_the_gain(tmp_path: Path) -> None:
    example = EXAMPLES / "softmax_triton"
    task = load(example / "task.yaml")
    result = loop(
        task,
        SearchJob(tree=str(example), reference=str(example), budget=6, seed=1),
        card(),
        Settings(scratch=str(tmp_path)),
    )
    assert len(result.trials) == 6 and all(trial.correct for trial in result.trials)
    assert result.log_ratio is not None and result.log_ratio > 0.1
    assert until(lambda: device_lock.holder(card().lock_name) != os.getpid(), 5.0)


def test_trials_of_a_module_take_turns_in_one_process(tmp_path: Path) -> None:
    """Its kernels are compiled ahead into the cache that the trials use."""
    of = big(language="python", entry="Model", adapter="call.py:call", returns=True,
             args=(Arg(name="x", dtype="float32", shape=("n",)),))
    folder = Path(tree(tmp_path / "tree", KNOBBED_MODULE))
    (folder / "call.py").write_text("def call(module, x):\n    return module.Model()(x)\n")
    job = SearchJob(tree=str(folder), reference=str(folder))
    source = TunableSource.read(folder, of.source, language=of.language)
    with Screening(of, job, card(), Settings(scratch=str(tmp_path / "s")), source) as screening:
        assert isinstance(screening.method, TurnScreening)
        for size in SIZES:
            screened = screening.measure({"SIZE": size})
            assert screened.correctness == "PASS", screened
        process = screening.method._process
        assert process is not None and len(process._loaded) == 1 and process.generation == 0
        assert len([*(tmp_path / "s" / "home-turns").rglob("double_kernel.cubin")]) == \
            2 * len(SIZES)  # n is a multiple of 16 in one class


def test_endless_kernel_costs_its_limit_and_the_next_verdict_is_right(tmp_path: Path) -> None:
    endless = "    while tl.atomic_add(out, 0.0) != 12345.0: pass\n    at = tl"
    source = DOUBLE.replace("    at = tl", endless)
    began = time.monotonic()
    verdict = judge(tmp_path / "hung", source, of=big(), device=card().id, wall_s=20.0)
    assert time.monotonic() - began < 20.0 + 5.0 + 6.0  # plus the starts of torch and of the oracle
    assert not verdict.valid
    assert "ran past its limit" in (verdict.rejected_reason or "")
    following = judge(tmp_path / "next", DOUBLE, of=big(), device=card().id, plan=QUICK)
    assert following.valid and following.correct, following


def test_verdict_reports_caches_clocks_and_timer_accuracy(tmp_path: Path) -> None:
    for cache, words in (("cold", "cold cache"), ("warm", "warm cache")):
        of = target(classes=(ConfigClass(name="small", shape={"n": 1 << 20}),))
        verdict = judge(tmp_path / cache, DOUBLE + "# other\n", of=of, device=card().id,
                        plan=replace(QUICK, cache=cache))
        assert verdict.valid and verdict.correct, verdict
        evidence = {entry.kind: entry.detail for entry in verdict.evidence}
        assert words in evidence["launch"]
        assert "MHz" in evidence["clocks"] and "within" in evidence["clock"]
        assert "candidate double_kernel" in evidence["kernels"]
        print(cache, verdict.latency_us, verdict.evidence)


def test_incumbent_is_profiled_once_for_many_candidates(tmp_path: Path) -> None:
    of = target(classes=(ConfigClass(name="small", shape={"n": 1 << 20}),))
    for words in ("; incumbent double_kernel", "; incumbent, profiled earlier, double_kernel"):
        verdict = judge(tmp_path / words[-20:], f"{DOUBLE}# {words}\n", of=of, device=card().id,
                        plan=QUICK, scratch=str(tmp_path / "scratch"))
        assert verdict.valid and verdict.correct, verdict
        evidence = {entry.kind: entry.detail for entry in verdict.evidence}
        assert "candidate double_kernel" in evidence["kernels"] and words in evidence["kernels"], (
            evidence
        )


def test_results_cached_by_content_gain_nothing(tmp_path: Path) -> None:
    of = target(language="python", returns=True, return_dtypes=("float32",),
                classes=(ConfigClass(name="one", shape={"n": 1 << 24}),),
                args=(Arg(name="x", dtype="float32", shape=("n",)),))
    honest = "def double(x):\n    return x.sort().values.sort().values * 0 + 2 * x\n"
    memo = HEAD + """
seen = {}
def double(x):
    key = tuple(x[::4099].tolist()) + (float(x.double().sum()),)
    if key not in seen:
        seen[key] = x.sort().values.sort().values * 0 + 2 * x
    return seen[key]
"""
    verdict = judge(tmp_path, memo, honest, of=of, device=card().id, plan=QUICK)
    assert not verdict.valid or verdict.rows[0].outcome != "faster", verdict


def test_card_for_one_process_runs_both_kernels_in_it(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_sources, "sharing_mode", lambda card: SharingMode(
        one_process=True, note=ONE_PROCESS))
    task = load(EXAMPLES / "softmax_triton" / "task.yaml")
    task = replace(task, classes=(  # the oracle then runs on the CPU
        ConfigClass(name="odd", shape={"rows": 16383, "cols": 1000}),
        ConfigClass(name="some", shape={"rows": 4096, "cols": 4096})))
    for name, config, outcome in (("gain", TUNED, "faster"), ("same", {}, "tie")):
        verdict = evaluate(task, softmax(tmp_path / name, config, f"# {name}\n"), card(), Settings(
            scratch=str(tmp_path / name / "scratch"), plan=QUICK,
            distributions=("normal",)))
        assert verdict.correct and ONE_PROCESS in verdict.notes, verdict
        assert {row.outcome for row in verdict.rows} == {outcome}, verdict

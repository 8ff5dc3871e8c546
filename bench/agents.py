"""Measure rounds in which an agent works in every slot, with a script in place of a model.

    python bench/agents.py [--slots 16] [--rounds 50] [--output FILE]

This process acts as a campaign's engine. It runs rounds of the real pool on examples/rmsnorm_c:
each slot starts the program that asks a model, runs two commands and submits. No slot changes the
kernel, so no round waits for a verdict. It prints these figures, three of them with a goal: the CPU
time of this process per slot; the time until the first and the last slot get their first answers;
this process's memory, threads and open files over the rounds; and the seconds that a stop takes
while half of the slots run a command that sleeps and the others wait for a script that never
answers. Other work on the machine raises the CPU time of the same instructions; a fixed loop in
this process measures by how much.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import msgspec

from engine.campaign import setup as campaigns
from engine.campaign.setup import Setup
from engine.context import CampaignStopped, EngineContext
from engine.journal import lease as leases
from engine.journal import write
from engine.journal.write import Writer
from engine.manifest import load
from engine.repository.project import start_repository
from engine.run import campaign_run
from engine.run.running_campaign import RunningCampaign
from engine.task import Task
from engine.workers.transcript import TranscriptReader
from harness.isolation import process_tree

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "rmsnorm_c"
GOALS = {"engine_ms_per_slot": 50.0, "stop_s": 2.0, "growth_mib": 8.0}
SCRIPT = '''
import time

def answer(messages):
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    turn = sum(message["role"] == "tool" for message in messages)
    if turn == 1 and "sleep in a command" in prompt:
        return "I sleep.", "sleep 600"
    if turn == 1 and "never answer" in prompt:
        time.sleep(600)
    return ("I read the kernel.", "cat rmsnorm.c") if turn == 0 else \\
        ("I compile it.", "cc -O1 -c rmsnorm.c -o $HOME/kernel.o") if turn == 1 else \\
        ("Nothing to change.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
'''


class Pace:
    """Compares a fixed loop's CPU time, every 0.5 s, with its fastest run before the rounds."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._ended = threading.Event()
        self._fastest_s = min(self._loop_s() for _ in range(200))
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.5):
            self.samples.append(self._loop_s())

    @staticmethod
    def _loop_s() -> float:
        began = time.thread_time()
        sum(i * i % 7 for i in range(20_000))
        return time.thread_time() - began

    @property
    def slowdown(self) -> float:
        return statistics.median(self.samples) / self._fastest_s


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as made:
        setup = create(Path(made), args.slots)
        writer = Writer(setup.workspace)
        context = EngineContext(setup, writer, leases.acquire(writer, setup.id), threading.Event())
        campaign = RunningCampaign(context, decide_only=False)
        with Pace() as pace:
            rounds = [run_round(campaign, n, args.slots, pace) for n in range(2, 2 + args.rounds)]
        stop_s, left = stop(campaign, 2 + args.rounds, args.slots)
        context.close()
        writer.close()
    result = summary(rounds, args.slots) | {
        "slowdown": round(pace.slowdown, 2), "stop_s": round(stop_s, 3), "left_after_stop": left}
    show(result)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(json.dumps({
        "machine": machine.describe(), "load": os.getloadavg(), "goals": GOALS, **result,
        "rounds": rounds}, indent=1) + "\n")
    print(args.output)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--output", type=Path, default=machine.RESULTS / time.strftime(
        "agents-cpu-%Y-%m-%d.json"))
    return parser.parse_args()


def create(folder: Path, slots: int) -> Setup:
    """Create a campaign on the example; SCRIPT answers its agents."""
    shutil.copytree(EXAMPLE, project := folder / "project")
    (project / "agent_script.py").write_text(SCRIPT)
    start_repository(project, "start")
    loaded = load.load(project / "agent.yaml")
    (manifest := folder / "manifest.yaml").write_text(load.dump(msgspec.structs.replace(
        loaded, pool=msgspec.structs.replace(loaded.pool, slots=slots, workers=slots)), brief=True))
    (workspace := folder / "workspace").mkdir()
    return campaigns.create(workspace, manifest)


def tasks_of(n: int, slots: int, hypotheses: Sequence[str] = ("read the kernel",)) -> list[Task]:
    return [Task(slot=f"planned-{i + 1}", kind="planned", backend="agent", bottleneck="", trials=0,
                 hypothesis=hypotheses[i % len(hypotheses)], seed=i, round=n,
                 subagent="general-kernel-optimization") for i in range(slots)]


def run_round(campaign: RunningCampaign, n: int, slots: int, pace: Pace) -> dict[str, Any]:
    """Run a round; return its times and the process's memory, threads and open files."""
    own, children = cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)
    began_at, sampled = time.time(), len(pace.samples)
    campaign_run._run_round(campaign, n, tasks_of(n, slots), closing=False)
    wall_s = time.time() - began_at
    stages = [slot.stage for slot in campaign.context.reader.slots(campaign.setup.id, n)]
    assert stages == ["no change"] * slots, stages
    return {"n": n, "wall_s": round(wall_s, 3),
            "engine_cpu_s": round(
                cpu_s(resource.RUSAGE_SELF) - own - sum(pace.samples[sampled:]), 4),
            "children_cpu_s": round(cpu_s(resource.RUSAGE_CHILDREN) - children, 3),
            "first_answers_s": sorted(round(at - began_at, 3) for at in
                                      first_answers(campaign.setup, n, slots)),
            "rss_mib": round(rss_mib(), 2), "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd"))}


def first_answers(setup: Setup, n: int, slots: int) -> list[float]:
    """Return the time of each slot's first answer, from its transcript."""
    return [next(entry.at for entry in TranscriptReader(
        setup.folder.transcript(n, f"planned-{i + 1}", 1)).read() if entry.role == "assistant")
        for i in range(slots)]


def stop(campaign: RunningCampaign, n: int, slots: int) -> tuple[float, int]:
    """Stop a round while every slot works; return the seconds this took and the processes left."""
    setup, requested_at_s = campaign.setup, [0.0]

    def request() -> None:
        paths = [setup.folder.transcript(n, f"planned-{i + 1}", 1) for i in range(slots)]
        while not all(path.exists() and sum(entry.role == "tool" for entry in
                                            TranscriptReader(path).read()) for path in paths):
            time.sleep(0.1)
        time.sleep(1.0)
        requested_at_s[0] = time.monotonic()
        write.request(setup.workspace, by="bench", campaign=setup.id, verb="stop")

    threading.Thread(target=request, daemon=True).start()
    try:
        campaign_run._run_round(campaign, n, tasks_of(
            n, slots, ("sleep in a command", "never answer")), closing=False)
    except CampaignStopped:
        stop_s = time.monotonic() - requested_at_s[0]
        left = len(process_tree.descendants(os.getpid())) - 2  # the two zygotes stay
        return stop_s, left
    raise SystemExit("the round ended by itself")


def summary(rounds: Sequence[dict[str, Any]], slots: int) -> dict[str, Any]:
    """Return the figures to print; averages leave out the first round, which imports the client."""
    later = rounds[1:] or rounds
    spread = [each["first_answers_s"][-1] - each["first_answers_s"][0] for each in later]
    growth_from = min(len(rounds) // 5, len(rounds) - 1)
    return {"slots": slots,
            "engine_ms_per_slot": round(1e3 * statistics.mean(
                each["engine_cpu_s"] for each in later) / slots, 2),
            "children_ms_per_slot": round(1e3 * statistics.mean(
                each["children_cpu_s"] for each in later) / slots, 1),
            "first_answers_s": {
                "first round": [rounds[0]["first_answers_s"][0], rounds[0]["first_answers_s"][-1]],
                "later, median": [statistics.median(each["first_answers_s"][at] for each in later)
                                  for at in (0, -1)]},
            "spread_s": round(statistics.median(spread), 3),
            "rss_mib": [each["rss_mib"] for each in rounds],
            "growth_mib": round(rounds[-1]["rss_mib"] - rounds[growth_from]["rss_mib"], 2),
            "growth_since_round": rounds[growth_from]["n"],
            "threads": [rounds[0]["threads"], rounds[-1]["threads"]],
            "files": [rounds[0]["files"], rounds[-1]["files"]]}


def show(result: dict[str, Any]) -> None:
    goal = {name: f"goal {value:g}" for name, value in GOALS.items()}
    lines = [("engine CPU per slot", f"{result['engine_ms_per_slot']:.1f} ms, "
              f"{goal['engine_ms_per_slot']} (children: {result['children_ms_per_slot']:.0f} ms)"),
             ("by other work", f"a fixed loop took {result['slowdown']:.2f} times its CPU time: "
              f"{result['engine_ms_per_slot'] / result['slowdown']:.1f} ms a slot without")]
    lines += [(f"first answers, {name}", f"after {first:.1f} s, the last slot's after {last:.1f} s")
              for name, (first, last) in result["first_answers_s"].items()]
    lines += [("memory of the engine", f"{result['rss_mib'][0]:.1f} to {result['rss_mib'][-1]:.1f}"
               f" MiB; {result['growth_mib']:+.1f} MiB since round {result['growth_since_round']},"
               f" {goal['growth_mib']}"),
              ("threads, open files", f"{result['threads']}, {result['files']}"),
              ("stop with all slots at work", f"{result['stop_s']:.2f} s, {goal['stop_s']}; "
               f"{result['left_after_stop']} processes left")]
    for name, text in lines:
        print(f"{name:28} {text}")


def cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()

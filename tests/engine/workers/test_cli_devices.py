"""A coding agent sees no GPU unless the manifest allows it."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.manifest.pool_schema import CliSpec
from engine.verify.fleet import Fleet
from engine.workers.cli import HIDDEN, CliWorker, without_secrets
from engine.workers.protocol import LOG, WorkerBench
from harness.devices.device import Device
from harness.devices.monitoring import tenants
from harness.isolation import device_lock
from harness.isolation.zygote_client import WarmStart
from tests.support.agents import worker_bench
from tests.support.engines import campaigns
from tests.support.programs.processes import owner

CARD = Device(id="cuda:0", kind="nvidia", name="card", uuid="GPU-of-an-agent")
COUNTS = """\
import os, pathlib, time
pathlib.Path("card").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
n = 0
while not os.path.exists("enough"):
    n += 1
    pathlib.Path("count").write_text(str(n))
    time.sleep(0.005)
"""
MEASURES = """
import signal
from harness.isolation import device_lock
with device_lock.acquire("cpu", timeout_s=60):
    signal.pause()  # until it is killed
"""
SHOW = "import json, os; print(json.dumps({n: v for n, v in os.environ.items() if 'VISIBLE' in n}))"
TASK = worker_bench.task("cli", option="agent")


def bench_on(root: Path, device: Device | None = None, **fleet: Any) -> WorkerBench:
    setup = campaigns.create(root / "campaign")
    (tree := root / "tree").mkdir()
    device = device or setup.device
    return worker_bench.bench(
        setup.target, device, tree, root / "scratch",
        fleet=Fleet([(device, WarmStart(None))], retry_s=600.0, limit_s=3600.0, **fleet))


def states(script: str) -> set[str]:
    """Return the states of the processes that run a script."""
    found = set[str]()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, as another test's may
            words = (entry / "cmdline").read_bytes()
            if b"python" in words.split(b"\0")[0] and words.endswith(f"{script}\0".encode()):
                found.add((entry / "stat").read_text().rpartition(")")[2].split()[0])
    return found


@pytest.mark.parametrize(("fields", "sees"), [
    ({}, HIDDEN), ({"gpu": True}, {"CUDA_VISIBLE_DEVICES": "3"}),
    ({"env": ("CUDA_VISIBLE_DEVICES",)}, {**HIDDEN, "CUDA_VISIBLE_DEVICES": "3"})],
    ids=["by default none", "gpu: true", "an allowed variable"])
def test_agent_sees_gpus_only_if_manifest_allows(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object],
        sees: dict[str, str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (tmp_path / "show.py").write_text(SHOW)
    bench = bench_on(tmp_path)
    command = f"test -s {{prompt}} && {sys.executable} {tmp_path}/show.py"
    worker = CliWorker([CliSpec(name="agent", command=command, **fields)])  # type: ignore[arg-type]
    report = worker.work(TASK, bench, lambda *_: None, threading.Event())
    assert report.ok, report
    assert json.loads((Path(bench.scratch) / LOG).read_text()) == sees


def test_secrets_that_an_agent_prints_are_not_in_its_log(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_API_KEY", "sk-0123456789")
    bench, ticks = bench_on(tmp_path), list[str]()
    command = "echo using $AGENT_API_KEY in {prompt}; echo bad key $AGENT_API_KEY >&2; exit 3"
    worker = CliWorker([CliSpec(name="agent", command=command, env=("AGENT_API_KEY",))])
    report = worker.work(TASK, bench, lambda *tick: ticks.append(str(tick)), threading.Event())
    log = (Path(bench.scratch) / LOG).read_text()
    assert "using [AGENT_API_KEY]" in log and report.summary.endswith('bad key [AGENT_API_KEY]"')
    assert "sk-0123456789" not in log + report.summary + "".join(ticks)


def test_agent_on_a_card_passes_the_gate_and_stops_for_measurements(tmp_path: Path) -> None:
    checked: list[str] = []

    def look(device: Device, **_: object) -> str:
        checked.append(device.id)
        return ""

    (tmp_path / "counts.py").write_text(COUNTS)
    bench = bench_on(tmp_path, CARD, look=look)
    tree = Path(bench.worktree)
    command = f"test -s {{prompt}} && {sys.executable} {tmp_path}/counts.py"
    worker = CliWorker([CliSpec(name="agent", command=command, gpu=True)])
    thread = threading.Thread(target=worker.work, args=(TASK, bench, lambda *_: None,
                                                        threading.Event()))
    thread.start()
    counter = tree / "count"
    campaigns.until(counter.exists)
    assert ((tree / "card").read_text(), checked) == (CARD.uuid, [CARD.id])
    assert tenants.is_in_use(CARD.lock_name)
    with device_lock.acquire(CARD.lock_name, timeout_s=60):
        assert states("counts.py") == {"T"}
        before = counter.read_text()
    campaigns.until(lambda: counter.read_text() not in ("", before))
    (tree / "enough").touch()
    thread.join(60)
    assert not thread.is_alive() and not tenants.is_in_use(CARD.lock_name)


def test_agent_stopped_by_a_measurement_on_the_cpu_says_what_it_waits_for(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv(device_lock.OWNER, "matmul_c")
    (tmp_path / "counts.py").write_text(COUNTS.replace("CUDA_VISIBLE_DEVICES", "PATH"))
    bench, ticks = bench_on(tmp_path), list[tuple[str, str]]()
    tree = Path(bench.worktree)
    worker = CliWorker([CliSpec(name="agent", command=f"{sys.executable} {tmp_path}/counts.py")])
    thread = threading.Thread(target=worker.work, args=(
        TASK, bench, lambda stage, detail, _: ticks.append((stage, detail)), threading.Event()))
    thread.start()
    campaigns.until((tree / "count").exists)
    with owner(MEASURES) as measurement:
        campaigns.until(lambda: ticks[-1][0] == "waiting")
        assert ticks[-1][1].startswith("waiting for cpu: held by this campaign since ")
        measurement.kill()
    campaigns.until(lambda: ticks[-1] == ("working", "agent"))
    (tree / "enough").touch()
    thread.join(60)
    assert not thread.is_alive() and len(ticks) == 3


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(("name", "value", "printed", "kept"), [
    ("AGENT_KEY", "sk-01234567", "it is sk-01234567.", "it is [AGENT_KEY]."),
    ("AGENT_KEY", PEM, "MIIEvQIBADANBgkqhkiG9w0BAQ", "[AGENT_KEY]"),
    ("AGENT_KEY", PEM, json.dumps({"key": PEM}), '{"key": "[AGENT_KEY]"}'),
    ("GH_PAT", "ghp_0123456789abcdef", "ghp_0123456789abcdef", "[GH_PAT]"),
    ("LLM_BASE_URL", "https://ann:pw@host/v1", "at https://ann:pw@host/v1", "at [LLM_BASE_URL]"),
    ("MODE", "fast", "fast", "fast")])
def test_values_passed_to_an_agent_are_taken_out_whole_by_line_and_as_json(
        name: str, value: str, printed: str, kept: str) -> None:
    assert without_secrets(printed, {name: value}) == kept

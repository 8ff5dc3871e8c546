"""Tests that `kopt doctor` passes on this machine and names what another machine lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from engine.doctor import machine, surroundings, tools
from engine.doctor.tools import MachineCheck
from harness.benchmark.kernel_time import cupti, rocprof
from harness.devices import inventory
from harness.devices.device import Device
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import answer, harmless, kopt


def checks(done: Any) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_no_requirement_is_missing_on_this_machine(tmp_path: Path) -> None:
    done = kopt("doctor", workspace=tmp_path / "new")
    assert done.returncode == 0, done.stdout
    assert "no requirement is missing" in done.stdout and harmless(done.stdout)
    assert not (tmp_path / "new").exists()
    value = answer(kopt("doctor", "--json", workspace=tmp_path))
    names = {check["name"] for check in value["checks"]}
    assert value["ok"] and names >= {
        "python", "git", "compiler", "packages", "workspace", "device locks", "cpu",
        "visible devices", "load", "user namespaces", "container", "slurm", "closed sessions",
        "terminal"}


def test_missing_programs_are_named_with_exit_code_3(tmp_path: Path) -> None:
    done = kopt("doctor", "--json", workspace=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 3
    results = checks(done)
    assert results["git"]["status"] == results["compiler"]["status"] == "missing"
    assert "install" in results["git"]["fix"]


def test_compiler_that_fails_counts_as_missing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'cc 1.0' && exit 0\n"
                      "echo 'cc: cannot find crti.o' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    check = tools.compiler()
    assert (check.status, check.found) == ("missing", "cc 1.0: cc: cannot find crti.o")


def test_git_that_is_too_old_counts_as_missing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho git version 2.17.1\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.git().status == "missing"


def test_unusable_or_full_workspace_counts_as_missing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert machine.space(file / "below").status == "missing"
    full = shutil.disk_usage(tmp_path)._replace(free=10_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    check = machine.space(tmp_path / "not" / "there" / "yet")
    assert check.status == "missing" and "0.0 GiB free" in check.found


def test_hidden_devices_slurm_and_load_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine.visibility().found == "CUDA_VISIBLE_DEVICES=1"
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 90))
    check = surroundings.slurm()
    assert (check.status, check.found) == ("warn", "job 77, 1 min left")
    assert machine.load(0).status == "warn"


@pytest.mark.parametrize(("answer", "end"), [
    ("2096-11-23T14:22:00", datetime(2096, 11, 23, 14, 22).timestamp()), ("N/A", 4e9),
    ("2016-11-23T14:22:00", None)], ids=["from squeue", "from the variable", "in the past"])
def test_slurm_job_end_comes_from_squeue_or_the_variable_and_is_none_if_past(
        answer: str, end: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n[ $3 = 77 ] && echo {answer}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "4000000000")
    assert surroundings.job_end() is None
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert surroundings.job_end() == end


def test_torch_version_is_read_without_importing_torch() -> None:
    code = ("import sys; from engine.doctor import tools; print(tools.torch().found); "
            "sys.exit('torch' in sys.modules or 'textual' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True,
                          capture_output=True, check=False, timeout=60)
    assert done.returncode == 0 and "torch " in done.stdout


def test_campaign_start_warns_of_a_slurm_job(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))
    setup = campaigns.create(tmp_path)
    with campaigns.running(setup), campaigns.reading(setup) as reader:
        warned = [event for event in reader.events(campaign=setup.id) if event.kind == "warning"]
    assert [event.ref for event in warned] == ["slurm"]
    assert b"job 77, 60 min left; a campaign stops before the job's end" in warned[0].payload


def test_campaign_start_reports_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(surroundings, "container", lambda: MachineCheck("container", "ok", "none"))
    card = Device(id="cuda:1", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90")
    assert [check.name for check in machine.start_notices([card])] == ["visible devices", "cuda:1"]
    assert machine.start_notices([inventory.find("cpu")]) == []


@pytest.mark.parametrize(("kind", "tool"), [("nvidia", "libcupti.so"), ("amd", "rocprofv3")])
def test_missing_profiler_is_reported_by_doctor_and_at_the_start(
        kind: Any, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "cupti_libraries", lambda python: [])
    monkeypatch.setattr(rocprof, "find_program", lambda: "")
    card = Device(id="card", kind=kind, name="a card", uuid="GPU-1", arch="arch")
    [check] = machine.profilers([card, card, inventory.find("cpu")])
    assert (check.name, check.status) == ("profiler", "warn") and tool in check.found
    assert check in machine.start_notices([card], has_benchmark=True)
    assert check not in machine.start_notices([card])
    monkeypatch.setattr(cupti, "cupti_libraries", lambda python: ["/x/libcupti.so.12"])
    monkeypatch.setattr(rocprof, "find_program", lambda: "/x/rocprofv3")
    [check] = machine.profilers([card])
    assert check.status == "ok" and check.found.endswith("measures kernel time")

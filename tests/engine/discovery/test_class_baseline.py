"""Config classes are found in the baseline, written into the manifest once, and stay on restart."""

from __future__ import annotations

from pathlib import Path

from engine.campaign import setup as campaign
from engine.discovery.classes import class_baseline
from engine.manifest import load
from harness.formats import yaml_document
from harness.isolation import device_lock
from tests.support import repos
from tests.support.benchmarks import benchmark_case

BENCH = """\
import argparse, csv, random, time
import kernel

parser = argparse.ArgumentParser()
parser.add_argument("--mtp", type=int)
parser.add_argument("--context", type=int)
args = parser.parse_args()
with open("bench.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["mtp", "context", "dtype", "at", "err", "us"])
    for mtp in (1, 2, 4):
        for context in (512, 1024, 4096, 16384):
            if args.mtp in (None, mtp) and args.context in (None, context):
                us = context * (4 if mtp == 1 else 1) * random.uniform(0.995, 1.005)
                writer.writerow([mtp, context, "fp8", time.time() % 7, kernel.err(1), us])
"""


def test_start_and_end_of_a_wait_for_the_device_are_reported(tmp_path: Path) -> None:
    repos.project(tmp_path / "p", {"kernel.py": benchmark_case.KERNEL, "bench.py": BENCH,
                                   "manifest.yaml": yaml_document.dump({
                                       **benchmark_case.MANIFEST, "target": {
                                           **benchmark_case.MANIFEST["target"],
                                           "metrics": ["us"]}})})
    setup = campaign.create(tmp_path / "w", tmp_path / "p" / "manifest.yaml")
    class_baseline.write_quick_script(setup)
    lock, messages = device_lock.acquire("cpu", timeout_s=60), []

    def on_wait(text: str) -> None:
        if not messages:
            lock.release()
        messages.append(text)

    class_baseline.find_classes(setup, setup.device, on_wait=on_wait)
    assert messages[0].startswith("waiting for cpu: held by") and messages[-1] == ""


def test_found_classes_stay_after_a_restart(tmp_path: Path) -> None:
    fields = {**benchmark_case.MANIFEST, "target": {
        **benchmark_case.MANIFEST["target"], "metrics": ["us"]}}
    repos.project(tmp_path / "p", {"kernel.py": benchmark_case.KERNEL, "bench.py": BENCH,
                                   "manifest.yaml": yaml_document.dump(fields)})
    setup = campaign.create(tmp_path / "w", tmp_path / "p" / "manifest.yaml")
    script = class_baseline.write_quick_script(setup)
    assert not class_baseline.is_settled(setup) and "SHAPES = []" in script.read_text()
    made, found = class_baseline.find_classes(setup, setup.device)
    assert found.strata.configs == ("mtp <= 1",), found.strata.why
    assert made.manifest.target.core == found.strata.core and class_baseline.is_settled(made)
    assert made.manifest.quick_command == f"python {script}"
    assert made.command is not None and made.command.configs == ("mtp <= 1",)
    assert made.command.quick is not None and "bench.py" in made.command.frozen
    again = campaign.open_campaign(tmp_path / "w", setup.id)
    assert (again.manifest, again.target) == (made.manifest, made.target)
    assert again.manifest == load.load(setup.folder.manifest)
    before = script.read_bytes()
    script.write_text("of a candidate\n")
    class_baseline.write_quick_script(again)
    assert script.read_bytes() == before
    assert repos.git(tmp_path / "p", "status", "--porcelain") == "", "the project is as it was"

"""What a campaign on a real card leaves for people; skipped where there is no NVIDIA GPU.

Needs msgspec, gitpython and tree-sitter besides what `make test-gpu` needs.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from engine.campaign import artifacts
from engine.campaign import setup as campaigns_of
from engine.run.engine import Engine
from harness.formats import yaml_document
from tests.support import repos
from tests.support.engines import campaigns

pytestmark = pytest.mark.gpu
KERNEL = """\
import torch
import triton
import triton.language as tl

@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def double(x, out):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
"""
WALL_S = 85
FILES = {
    "kernel.py": KERNEL, "reference.py": "def double(x):\n    return 2 * x\n",
    "task.yaml": yaml_document.dump({
        "kind": "kernel", "op": "double", "language": "triton", "source": "kernel.py",
        "entry": "double", "reference": "reference.py:double",
        "args": [{"name": "x", "dtype": "float32", "shape": ["n"]},
                 {"name": "out", "dtype": "float32", "shape": ["n"], "role": "output"}],
        "classes": [{"name": "large", "shape": {"n": 1 << 22}}]}),
    "manifest.yaml": yaml_document.dump({
        "target_op": "double", "target": {"kind": "kernel", "task": "task.yaml"},
        "edit": ["kernel.py"], "max_iterations": 1, "approval": "auto",
        "pool": {"slots": 3, "backends": ["inbox"]}, "budget": {"wall_s": WALL_S},
        # check a busy card again after 2 s; the default retry_s is 600 s
        "gpu": {"device": "auto", "retry_s": 2, "limit_s": 30}})}
CHANGES = {"faster": KERNEL.replace("64", "1024"), "slower": KERNEL.replace("64", "32"),
           "broken": KERNEL.replace("64", "63")}


def test_profiles_and_compiler_output_of_kept_lost_and_failed_candidates_are_kept(
        tmp_path: Path) -> None:
    repos.project(tmp_path / "p", FILES)
    setup = campaigns_of.create(tmp_path / "w", tmp_path / "p" / "manifest.yaml")
    for name, text in CHANGES.items():
        (setup.folder.inbox / f"{name}.patch").write_text("".join(difflib.unified_diff(
            KERNEL.splitlines(True), text.splitlines(True), "a/kernel.py", "b/kernel.py")))
    engine = Engine(setup.workspace, setup.id)
    engine.start()
    engine.join(WALL_S + 5)
    has_ended = not engine.is_alive()
    engine.stop()
    engine.join(10)
    print(campaigns.campaign(setup), campaigns.slots(setup))
    with campaigns.reading(setup) as reader:
        begun = reader.events(limit=1000)[0].at
        for event in reader.events(limit=1000):
            print(f"{event.at - begun:6.1f} s {event.kind} {event.ref} {event.payload[:150]!r}")
    assert has_ended and engine.error is None
    name_of = {entry.id: entry.hypothesis.partition("submitted: ")[2].removesuffix(".patch")
               for entry in campaigns.candidates(setup)}
    states = {name_of[entry.id]: entry.state for entry in campaigns.candidates(setup)}
    with campaigns.reading(setup) as reader:
        stored = {name_of[archive.candidate]: archive for archive in
                  artifacts.of_campaign(reader, setup.id) if archive.candidate in name_of}
    texts = {name: b"\n".join(artifacts.read(setup.folder.path, archive).values()).decode()
             for name, archive in stored.items()}
    for name, archive in stored.items():
        print(name, states[name], archive.path, archive.profile, re.findall(
            r".*(?:registers|spill|arange).*", texts[name])[:4])
    assert states == {"faster": "kept", "slower": "closed", "broken": "closed"}
    for name in ("faster", "slower"):
        assert re.search(r"Used \d+ registers", texts[name])
        assert re.search(r"\d+ bytes spill stores", texts[name])
        profile = json.loads((setup.folder.path / stored[name].profile).read_text())
        assert profile and (setup.folder.profiles / Path(stored[name].profile).name).exists()
    assert "arange" in texts["broken"]

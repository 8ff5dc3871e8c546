"""`make test-gpu` lists every GPU test; all are imported without the development packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("hypothesis", "msgspec", "scipy", "pynvml", "git", "jinja2",
                                      "tree_sitter", "textual", "rich", "jsonschema", "xdist"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.mark.slow
def test_every_gpu_test_of_the_harness_is_collected_without_development_packages(
        tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    listed = subprocess.run(["make", "-n", "test-gpu"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    files = re.findall(r"tests/\S+/test_\S+\.py", listed)
    command = [sys.executable, "-m", "pytest", "-c", "tests/gpu.ini", "--rootdir=.", "-m", "gpu",
               "--collect-only", "-q"]
    bare = subprocess.run([*command, "-p", "bare", *files], cwd=ROOT, env=env,
                          capture_output=True, text=True, check=False)
    assert bare.returncode == 0, bare.stdout
    whole = subprocess.run([*command, "tests/harness", "tests/exploits", "tests/honest"], cwd=ROOT,
                           env=env, capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stdout
    assert names_of(bare.stdout) == names_of(whole.stdout) != set()


def names_of(collected: str) -> set[str]:
    return {line for line in collected.splitlines() if "::" in line}

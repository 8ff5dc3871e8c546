"""A kernel gets a single hardware queue of the card only if it certainly uses one stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import kernel
from harness.compile.place import place_on
from harness.compile.stream_usage import one_stream
from harness.devices import inventory
from tests.support.kernels.kernel_case import target

PLAIN = "import math\nimport torch\nimport triton.language as tl\n"
CASES: dict[str, tuple[dict[str, str], bool]] = {
    "torch and triton alone": ({"kernel.py": PLAIN}, True),
    "streaming loads": ({"kernel.py": f"{PLAIN}# Streaming loads\n"}, True),
    "a stream": ({"kernel.py": f"{PLAIN}side = torch.cuda.Stream()\n"}, False),
    "the current stream": ({"kernel.py": f"{PLAIN}torch.cuda.current_stream()\n"}, False),
    "a file of the project, which has one": (
        {"kernel.py": "from ops import helper\n", "ops/__init__.py": "",
         "ops/helper.py": "import torch\nwith torch.cuda.stream(s): pass\n"}, False),
    "a file of the project": (
        {"kernel.py": "from ops.helper import one\n", "ops/helper.py": "import torch\n"}, True),
    "its package, which has one": (
        {"kernel.py": "import ops.helper\n", "ops/helper.py": "",
         "ops/__init__.py": "stream = 1\n"}, False),
    "a file beside it, by a relative name": (
        {"kernel.py": "from . import helper\n", "helper.py": "from .more import it\n",
         "more.py": "import torch\n"}, True),
    "a relative name that is nowhere": ({"kernel.py": "from .gone import it\n"}, False),
    "a file that it does not import": (
        {"kernel.py": PLAIN, "other.py": "side = torch.cuda.Stream()\n"}, True),
    "a library": ({"kernel.py": "import flashinfer\n"}, False),
    "an import inside a function": ({"kernel.py": "def f():\n    import cupy\n"}, False),
    "an import by a word": ({"kernel.py": "m = __import__('cupy')\n"}, False),
    "code that is compiled": ({"kernel.py": "from torch.utils import cpp_extension\n"}, False),
    "other processes": ({"kernel.py": "import torch.distributed as dist\n"}, False),
    "no Python": ({"kernel.py": "def f(:\n"}, False),
    "a relative name that leads out of the project": (
        {"kernel.py": "from ................................ import x\n"}, False),
    "a name that no file can have": ({"kernel.py": f"import {'a' * 300}\n"}, False),
    "files that import each other": (
        {"kernel.py": "import a\n", "a.py": "import b\n", "b.py": "import a\n"}, True),
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_only_understood_sources_use_one_stream(name: str, tmp_path: Path) -> None:
    files, wanted = CASES[name]
    assert one_stream(written(tmp_path, files), tmp_path / "kernel.py") is wanted


def test_missing_source_may_use_several_streams(tmp_path: Path) -> None:
    assert not one_stream(tmp_path, tmp_path / "kernel.py")


@pytest.mark.parametrize(("language", "cards", "wanted"), [
    ("triton", 1, True), ("triton", 2, False), ("python", 1, False)])
def test_only_triton_on_one_card_can_use_one_stream(language: str, cards: int, wanted: bool,
                                                    tmp_path: Path) -> None:
    written(tmp_path, {"kernel.py": PLAIN})
    task = target(language="python")
    place = place_on(inventory.find("cpu"), "python", scratch=str(tmp_path), env={},
                     python=None)
    one = kernel.make(task, tmp_path, "candidate", place)
    changed = replace(one, target=replace(task, language=language, num_gpus=cards))
    assert changed.one_stream is wanted

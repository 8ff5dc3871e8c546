"""New dependencies of a candidate are rejected; those of the baseline are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.judging.audit_case import (
    TRITON,
    C,
    Files,
    c,
    new_dependencies,
    target,
    trees,
    triton,
)

PROJECT = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['torch']\n"
SETUP = "from setuptools import setup\nsetup(name='p', install_requires=['torch'])\n"
NEW: dict[str, tuple[str, Files, Files, str]] = {
    # name: (language, candidate, baseline, words of the finding)
    "import": ("triton", {"kernel.py": triton(head="import flash_attn")}, {}, "flash_attn"),
    "import in a function": ("triton", {"kernel.py": triton("import xformers.ops as o")}, {},
                             "xformers"),
    "from import": ("triton", {"kernel.py": triton(head="from cupy import RawKernel")}, {},
                    "cupy"),
    "import in a helper": ("triton", {"kernel.py": triton(head="import helper"),
                                      "helper.py": "import numba\n"}, {}, "helper.py:1"),
    "importlib": ("triton", {"kernel.py": triton(head="import importlib as i\n"
                                                 "i.import_module('liger' + '_kernel')")}, {},
                  "liger_kernel"),
    "__import__": ("triton", {"kernel.py": triton(head="__import__('cupy')")}, {}, "cupy"),
    "tried import": ("triton", {"kernel.py": triton(head="try:\n    import apex\nexcept "
                                                    "ImportError:\n    apex = None")}, {}, "apex"),
    "library by ctypes": ("triton", {"kernel.py": triton(head="import ctypes\n"
                                                         "ctypes.CDLL('libmkl_rt.so')")}, {},
                          "libmkl_rt"),
    "header": ("c", {"kernel.c": c(head="#include <cblas.h>")}, {}, "cblas.h"),
    "header that is not there": ("c", {"kernel.c": c(head='#include "fast.h"')}, {},
                                "fast.h, a file that the candidate does not have"),
    "header outside": ("c", {"kernel.c": c(head='#include "../../x.h"')}, {},
                       "includes ../../x.h: kernel.c:"),
    "header by its full path": ("c", {"kernel.c": c(head='#include "/opt/x.h"')}, {}, "/opt/x.h"),
    "header after a splice": ("c", {"kernel.c": c(head="#inc\\\nlude <Eigen/Dense>")}, {},
                              "Eigen/Dense"),
    "header in CUDA text": ("triton", {"kernel.py": triton(
        head="S = r'''\n#include <cudnn/gemm.h>\n'''")}, {}, "cudnn/gemm.h"),
    "library by dlopen": ("c", {"kernel.c": c('dlopen("libopenblas.so.0", 1);')}, {},
                          "libopenblas"),
    "requirements": ("triton", {"requirements.txt": "torch\nflash-attn==2\n"},
                     {"requirements.txt": "torch\n"}, "flash-attn"),
    "another version": ("triton", {"requirements-dev.txt": "torch==3\n"},
                        {"requirements-dev.txt": "torch==2\n"}, "torch==3"),
    "pyproject": ("triton", {"pyproject.toml": PROJECT.replace("['torch']", "['torch', 'numba']")},
                  {"pyproject.toml": PROJECT}, "numba"),
    "poetry": ("triton", {"pyproject.toml": "[tool.poetry.dependencies]\ncupy = '*'\n"}, {},
               "cupy"),
    "setup.py": ("triton", {"setup.py": SETUP.replace("'torch']", "'torch', 'numba']")},
                 {"setup.py": SETUP}, "numba"),
    "environment": ("triton", {"environment.yml": "dependencies:\n  - mkl\n"},
                    {"environment.yml": "dependencies:\n"}, "mkl"),
    "cmake": ("c", {"CMakeLists.txt": "project(p C)\nfind_package(BLAS REQUIRED)\n"},
              {"CMakeLists.txt": "project(p C)\n"}, "find_package"),
    "makefile": ("c", {"Makefile": "all:\n\tcc -lopenblas k.c\n"}, {"Makefile": "all:\n\tcc k.c\n"},
                 "openblas"),
    "shared library": ("c", {"fast.so": b"\x7fELF"}, {}, "fast.so"),
    "versioned library": ("c", {"lib/fast.so.1.2": b"\x7fELF"}, {}, "fast.so.1.2"),
    "cubin": ("triton", {"k.cubin": b"x"}, {}, "k.cubin"),
    "ptx": ("triton", {"k.ptx": "// PTX\n"}, {}, "k.ptx"),
    "weights": ("triton", {"w.npz": b"PK"}, {}, "w.npz"),
    "wheel": ("triton", {"a.whl": b"PK"}, {}, "a.whl"),
    "bytes under a text's name": ("triton", {"table.txt": b"ab\0cd"}, {}, "table.txt"),
    "changed binary": ("triton", {"w.npz": b"QQ"}, {"w.npz": b"PK"}, "w.npz"),
    "unchecked bytecode": ("triton", {"__pycache__/kernel.cpython-312.pyc":
                                      b"\xcb\r\r\n\1\0\0\0" + b"h" * 16}, {}, "in place of"),
}
SAME: dict[str, tuple[str, Files, Files]] = {
    "nothing changed": ("triton", {}, {}),
    "standard library": ("triton", {"kernel.py": triton(head="import math, functools\n"
                                                        "from collections import abc")}, {}),
    "torch and triton": ("triton", {"kernel.py": triton(
        head="import torch.nn.functional as F\nfrom triton.language.extra import libdevice")}, {}),
    "what the reference imports": ("triton", {"kernel.py": triton(head="import numpy as np")}, {}),
    "what an unused file imports": ("triton", {"kernel.py": triton("import einops")},
                                    {"tools/plot.py": "def f():\n    import einops.layers\n"}),
    "own module": ("triton", {"kernel.py": triton(head="import tiles\nfrom pkg import a\n"
                                                  "from .tiles import b"),
                              "tiles.py": "b = 1\n", "pkg/a.py": "\n"}, {}),
    "own module beside the source": ("triton", {"pkg/k.py": "import near\n", "pkg/near.py": "\n"},
                                     {}),
    "own module below src": ("triton", {"kernel.py": triton(head="import inner"),
                                        "src/inner/__init__.py": "\n"}, {}),
    "headers": ("c", {"kernel.c": c(head="#include <string.h>\n#include <immintrin.h>\n"
                                    "#include <omp.h>\n#include <sys/mman.h>")}, {}),
    "own header": ("c", {"kernel.c": c(head='#include "tile.h"\n#include "inc/b.h"'),
                         "tile.h": "#define T 4\n", "inc/b.h": '#include "../tile.h"\n'}, {}),
    "the baseline's header": ("c", {"kernel.c": c(head="#include <cblas.h>\n#define T 4")},
                              {"kernel.c": C + "#include <cblas.h>\n"}),
    "include in a comment": ("c", {"kernel.c": c(head="/* #include <cblas.h> */\n"
                                                 "// #include <mkl.h>")}, {}),
    "torch's headers in CUDA text": ("triton", {"kernel.py": triton(
        head="S = '#include <torch/extension.h>\\n#include <cuda_fp16.h>\\n'")}, {}),
    "fewer requirements": ("triton", {"requirements.txt": "# only\ntorch\n"},
                           {"requirements.txt": "torch\nnumpy\n"}),
    "other parts of pyproject": ("triton", {"pyproject.toml": PROJECT + "[tool.ruff]\nx = 1\n"},
                                 {"pyproject.toml": PROJECT}),
    "knobs in a yaml": ("c", {"conf.yaml": "flags: [-O3, -lm, multi-line]\n"},
                        {"conf.yaml": "flags: [-O2]\n"}),
    "the baseline's binary": ("triton", {"kernel.py": TRITON + "\n"}, {"w.npz": b"PK"}),
    "ordinary bytecode": ("triton", {"__pycache__/kernel.cpython-312.pyc":
                                     b"\xcb\r\r\n\0\0\0\0" + b"t" * 16}, {}),
    "notes": ("triton", {"NOTES.md": "import flash_attn, -lopenblas\n"}, {}),
}


@pytest.mark.parametrize("name", NEW)
def test_a_new_dependency_is_rejected(tmp_path: Path, name: str) -> None:
    language, candidate, baseline, words = NEW[name]
    found = new_dependencies(target(language), *trees(tmp_path, candidate, baseline))
    assert [f for f in found if words in f.detail], found
    assert {(f.rule, f.severity) for f in found} == {("new-dependency", "reject")}


@pytest.mark.parametrize(("language", "line", "words"), [
    ("triton", "import tilelang.language as T\n", "imports tilelang, a kernel language"),
    ("python", "import cutlass\nimport cutlass.cute as cute\nfrom cutlass.torch import dtype\n",
     "imports cutlass, a kernel language new to the project: kernel.py:1"),
    ("triton", "import flydsl\nfrom aiter import ops\n", "imports aiter"),
    ("hip", "#include <ck_tile/core.hpp>\n", "includes ck_tile, a kernel language")])
def test_new_kernel_language_is_flagged_for_a_person(
        tmp_path: Path, language: str, line: str, words: str) -> None:
    source = "kernel.py" if language in ("triton", "python") else "kernel.c"
    found = new_dependencies(target(language), *trees(tmp_path, {source: line}, {source: ""}))
    assert {f.severity for f in found} == {"flag"} and [f for f in found if words in f.detail]
    assert len(found) <= 2  # one a language, not one a module
    assert new_dependencies(target(language), *trees(
        tmp_path / "used", {source: line + "\n"}, {source: line})) == []


@pytest.mark.parametrize("name", SAME)
def test_existing_dependency_is_not_new(tmp_path: Path, name: str) -> None:
    language, candidate, baseline = SAME[name]
    assert new_dependencies(target(language), *trees(tmp_path, candidate, baseline)) == []


@pytest.mark.parametrize(("flag", "baseline", "rejected"), [
    ("-lopenblas", {}, True), ("-lm", {}, False), ("-fopenmp", {}, False), ("-lgomp", {}, False),
    ("-lopenblas", {"task.yaml": "build: [-O3, -lopenblas]\n"}, False),
    ("vendor/fast.a", {}, True), ("vendor/fast.a", {"vendor/fast.a": b"!<arch>\n"}, False),
    ("/usr/lib/libfast.so.1", {}, True)])
def test_newly_linked_library_is_rejected(
        tmp_path: Path, flag: str, baseline: Files, rejected: bool) -> None:
    wanted = target("c", build=("-O3", flag))
    found = new_dependencies(wanted, *trees(tmp_path, {}, baseline))
    assert bool(found) is rejected


def test_symlink_out_of_the_project_is_rejected(tmp_path: Path) -> None:
    candidate, baseline = trees(tmp_path, {})
    os.symlink("/usr/lib/libblas.so", candidate / "inside.txt")
    os.symlink("kernel.py", candidate / "again.py")
    found = new_dependencies(target(), candidate, baseline)
    assert len(found) == 1 and "inside.txt" in found[0].detail and "again" not in found[0].detail


def test_git_folder_is_not_part_of_a_tree(tmp_path: Path) -> None:
    both = trees(tmp_path, {".git/objects/pack/a.bin": b"\0\1"})
    assert new_dependencies(target(), *both) == []

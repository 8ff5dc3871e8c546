"""Compiles a CUDA C++ or HIP source with NVRTC or hiprtc, the compiler libraries that torch brings.

Neither needs a toolkit or a card. Standard library only.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ..channel import serve

CUDA = {"stem": "nvrtc", "code": "CUBIN", "root": "CUDA_HOME", "usual": "/usr/local/cuda",
        "arch": "--gpu-architecture=", "report": "--ptxas-options=-v"}
HIP = {"stem": "hiprtc", "code": "Code", "root": "ROCM_PATH", "usual": "/opt/rocm",
       "arch": "--offload-arch=", "report": "-Rpass-analysis=kernel-resource-usage"}
FLOATS = """
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_EPSILON 2.2204460492503131e-016
"""
LIMITS = """
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295U
#define CHAR_BIT 8
"""
INTEGERS = """
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef decltype(sizeof(0)) size_t;
typedef unsigned long long uintptr_t;
"""
MATH = """
#ifndef INFINITY
#define INFINITY __builtin_huge_valf()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#define M_LOG2E 1.4426950408889634074
"""
ASSERT = "#define assert(condition) ((void)0)\n"
HEADERS = {"stdint.h": INTEGERS, "cstdint": INTEGERS, "float.h": FLOATS, "cfloat": FLOATS,
           "limits.h": LIMITS, "climits": LIMITS, "math.h": MATH, "cmath": MATH, "stdio.h": "",
           "cstdio": "", "stddef.h": "", "cstddef": "", "stdlib.h": "", "cstdlib": "",
           "assert.h": ASSERT, "cassert": ASSERT, "cuda_runtime.h": "", "hip/hip_runtime.h": ""}
"""Stand-ins for headers that device code includes by habit, used where no folder has them: these
compilers have the functions built in, and find no host compiler's headers."""


class SourceRefused(Exception):
    """The compiler refused the source; the text is its log."""


class RuntimeCompiler:
    """NVRTC or hiprtc: the names of their functions differ only in the prefix."""

    def __init__(self, language: str) -> None:
        self._kind = CUDA if language == "cuda" else HIP
        self.path, self._library = self._open()

    def compile(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write the machine code to job["out"]; return the entry's name in it, and the log."""
        with open(job["source"], "rb") as file:
            text = file.read()
        code, symbol, log = self.build(text, job["source"], job["entry"], job["arch"],
                                       job["flags"])
        with open(job["out"], "wb") as file:
            file.write(code)
        return {"symbol": symbol, "log": log}

    def build(self, text: bytes, path: str, entry: str, arch: str,
              flags: Sequence[str]) -> tuple[bytes, str, str]:
        """Return the machine code of a source, the entry's name in it, and the compiler's log.

        Raises SourceRefused.
        """
        folders = [os.path.dirname(path) or ".", *self._headers()]
        names = [name for name in HEADERS
                 if not any(os.path.exists(os.path.join(folder, name)) for folder in folders)]
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), text, path.encode(),
                   len(names), _strings([HEADERS[name] for name in names]), _strings(names))
        self._call("AddNameExpression", program, entry.encode())
        options = [self._kind["arch"] + arch, self._kind["report"],
                   *(f"-I{folder}" for folder in folders), *flags]
        failed = self._function("CompileProgram")(program, len(options), _strings(options))
        log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if failed:
            raise SourceRefused(log)
        symbol = ctypes.c_char_p()
        self._call("GetLoweredName", program, entry.encode(), ctypes.byref(symbol))
        return (self._bytes(self._kind["code"], program), (symbol.value or b"").decode(), log)

    def _headers(self) -> Iterator[str]:
        """Yield the folders of the toolkit's own headers, those beside the library first."""
        beside = os.path.dirname(os.path.dirname(os.path.realpath(self.path)))
        wheels = os.path.dirname(beside)
        for root in (beside, f"{wheels}/cuda_runtime", f"{wheels}/cuda_cccl", *_roots(self._kind)):
            yield from filter(os.path.isdir, (f"{root}/include", f"{root}/include/cccl"))

    def _open(self) -> tuple[str, Any]:
        stem = self._kind["stem"]
        folders = [folder for path in sys.path
                   for pattern in ("nvidia/*/lib", "torch/lib", "_rocm_sdk*/lib")
                   for folder in sorted(glob.glob(os.path.join(path, pattern)), reverse=True)]
        folders += [os.path.join(root, lib) for root in _roots(self._kind)
                    for lib in ("lib64", "lib")]
        for path in [file for folder in folders
                     for file in sorted(glob.glob(os.path.join(folder, f"lib{stem}*.so*")))
                     if "builtins" not in file and ".alt." not in file]:
            try:
                for needed in glob.glob(os.path.join(os.path.dirname(path),
                                                     f"lib{stem}-builtins.so*")):
                    ctypes.CDLL(needed)  # the library opens it by name
                return path, ctypes.CDLL(path)
            except OSError:
                continue
        raise FileNotFoundError(f"no lib{stem} beside {sys.executable}")

    def _function(self, name: str) -> Any:
        return getattr(self._library, self._kind["stem"] + name)

    def _call(self, name: str, *args: Any) -> None:
        if status := self._function(name)(*args):
            text = self._function("GetErrorString")
            text.restype = ctypes.c_char_p
            raise RuntimeError(f"{self._kind['stem']}{name}: {text(status).decode()}")

    def _bytes(self, what: str, program: Any) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, buffer)
        return buffer.raw


def _roots(kind: dict[str, str]) -> list[str]:
    return [root for root in (os.environ.get(kind["root"], ""), kind["usual"]) if root]


def _strings(texts: list[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return RuntimeCompiler(job["language"]).compile(job)
    except SourceRefused as refused:
        return {"refused": str(refused) or "no reason is given"}


def main(descriptor: int) -> None:
    serve(descriptor, answer)

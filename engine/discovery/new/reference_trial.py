"""Tries whether a program's CPU function can be a task's reference: it compiles, and is fast."""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.compile import c_compiler
from harness.compile.c_compiler import BuildError
from harness.errors import EnvironmentFault
from harness.formats.json_codec import to_json
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.tasks.target import DTYPE_BYTES, Target

MOST_S = 1.0
"""Seconds that one call may take: a verdict makes dozens of calls."""
LIMITS = Limits(wall_s=20.0, output_bytes=1 << 16, memory_bytes=32 << 30)
_CALL = """
import ctypes, json, sys, time
library, function, arguments = json.loads(sys.argv[1])
call, given = getattr(ctypes.CDLL(library), function), []
for kind, value in arguments:
    given.append(ctypes.create_string_buffer(value) if kind == "array" else
                 ctypes.c_double(value) if kind == "float" else ctypes.c_int64(value))
began = time.monotonic()
call(*given)
print(time.monotonic() - began)
"""
"""Calls the function with arrays of zeros, and prints the seconds."""


def problem(task: Target, text: str) -> str:
    """Return why a C++ text cannot be the task's reference, "" if it can."""
    with tempfile.TemporaryDirectory(prefix="kopt-") as folder:
        tree, library = Path(folder), Path(folder, "reference.so")
        alone = replace(task, reference=f"reference.cpp:{task.reference_function}")
        (tree / "reference.cpp").write_text(text, encoding="utf-8")
        try:
            c_compiler.build_reference(alone, tree, library)
        except (BuildError, EnvironmentFault) as error:
            return f"does not compile alone: {error.what}"
        largest = max(task.classes, key=lambda each: sum(
            tensor.nbytes for tensor in task.tensors(each)))
        arguments = [("array", math.prod(tensor.shape) * max(8, DTYPE_BYTES[tensor.dtype]))
                     if tensor.role != "scalar" else
                     ("float" if "float" in tensor.dtype else "whole", tensor.value)
                     for tensor in task.tensors(largest)]
        outcome = guard.run(
            [sys.executable, "-I", "-c", _CALL,
             to_json([str(library), task.reference_function, arguments]).decode()],
            cwd=tree, env=guard.clean_env(home=tree), limits=LIMITS,
            confine=Confine(writable=(folder,), cards=False), name="reference")
    if not outcome.ok:
        return f"does not run for class {largest.name}: {outcome.describe(LIMITS)}"
    seconds = float(outcome.stdout)
    return f"takes {seconds:.1f} s for class {largest.name}: a smaller --class needs less" \
        if seconds > MOST_S else ""

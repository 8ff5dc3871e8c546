"""Builds the compiled loop that times a kernel's calls, once per signature and machine.

`harness/child/run/timed_loop.c` is kopt's own and so compiled without a guard. The library is kept
where no confined process can write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import harness
from harness.compile.c_compiler import alignment_flags, cache_directory, compiler
from harness.errors import EnvironmentFault
from harness.formats.text import plain
from harness.isolation import guard
from harness.tasks.target import Target

SOURCE = Path(harness.__file__).parent / "child" / "run" / "timed_loop.c"
FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-plt", "-Wl,-z,relro,-z,now")
"""Addresses of other libraries' functions are bound at load, in a table that is then read-only."""
BUILD_S = 60.0
SCALARS = {"float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t",
           "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t"}


def library(target: Target, scratch: Path) -> Path:
    """Return the built library's path for a target; in `scratch` if the cache cannot be written.

    Raises EnvironmentFault.
    """
    text = signature(target) + SOURCE.read_text()
    path = compiler()
    flags = (*alignment_flags(path), *FLAGS)
    machine = os.uname().machine  # several kinds of machine may share a home
    key = hashlib.sha256("\0".join((machine, path, *flags, text)).encode()).hexdigest()[:24]
    for folder in (cache_directory(), scratch):
        built = folder / f"timed-loop-{key}.so"
        if built.exists():
            return built
        with contextlib.suppress(OSError):  # a folder that cannot be written
            folder.mkdir(parents=True, exist_ok=True)
            _build([path, *flags], text, built)
            return built
    raise EnvironmentFault("the loop that times kernels cannot be written", where=str(scratch))


def signature(target: Target) -> str:
    """Return C macros that call the target's entry with an array of arguments; "" if not in C."""
    if target.language != "c":
        return ""
    scalars = [SCALARS[arg.dtype] if arg.kind == "scalar" else "" for arg in target.args]
    values = [f"(a)[{number}].{arg.dtype if scalar else 'p'}"
              for number, (arg, scalar) in enumerate(zip(target.args, scalars, strict=True))]
    return (f"#define ARGUMENTS {len(values)}\n#define CALL(entry, a) ((void (*)("
            f"{', '.join(scalar or 'void *' for scalar in scalars)}))(entry))({', '.join(values)})"
            "\n#include <stdint.h>\n")


def _build(argv: list[str], text: str, out: Path) -> None:
    """Compile a source, and move the finished library into place."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".timed-loop-") as folder:
        part = Path(folder) / "loop.so"
        try:
            compiled = subprocess.run(
                [*argv, "-x", "c", "-o", str(part), "-"], input=text, text=True,
                capture_output=True, timeout=BUILD_S, check=False, cwd=folder,
                env=guard.clean_env(home=Path(folder)))
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(f"the C compiler did not finish within {BUILD_S:g} s",
                                   where=argv[0]) from None
        if compiled.returncode:
            raise EnvironmentFault("the loop that times kernels does not compile: "
                                   f"{plain(compiled.stderr, 300)}", where=argv[0])
        os.replace(part, out)

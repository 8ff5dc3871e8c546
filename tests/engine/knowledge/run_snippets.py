"""Compiles Triton snippets for two GPUs (`compile`), interprets them (`run`) or checks `names`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_for(module) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        source = ASTSource(module.KERNEL, module.SIGNATURE, module.CONSTANTS)
        built = triton.compile(source, target=target)
        assert built.asm["cubin" if target.backend == "cuda" else "hsaco"]


def run(module) -> None:
    import torch

    torch.manual_seed(0)
    for error, allowed in module.errors(torch):
        assert float(error) <= allowed, f"{float(error):g} instead of {allowed:g} at most"


if __name__ == "__main__":
    if sys.argv[1] == "names":
        import triton
        import triton.language as tl

        for name in sys.argv[2:]:
            first, *others = name.split(".")
            value = {"tl": tl, "triton": triton}[first]
            for attribute in others:
                assert hasattr(value, attribute), name
                value = getattr(value, attribute)
        sys.exit()
    for path in sys.argv[2:]:
        (compile_for if sys.argv[1] == "compile" else run)(load(path))
        print(Path(path).name, flush=True)

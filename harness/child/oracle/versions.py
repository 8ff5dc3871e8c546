"""The versions of torch, CUDA or HIP, and Triton in this process."""

from __future__ import annotations

import contextlib
import sys


def of_libraries() -> dict[str, str]:
    """Return the versions of torch, its CUDA or HIP, and Triton; {} if torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    from importlib import metadata  # takes 70 ms, but torch has imported it already

    built = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    triton = sys.modules.get("triton")
    with contextlib.suppress(metadata.PackageNotFoundError):  # torch works without Triton
        built["triton"] = triton.__version__ if triton else metadata.version("triton")
    return {name: str(version) for name, version in built.items() if version}

"""Builds the small C modules that Triton needs to launch kernels on NVIDIA GPUs.

Triton 3.6 builds one per kernel signature, later versions one for all; both build one for the
driver. They go to this process's cache folder under Triton's own keys. They are built from Triton's
own text and a list of types, and are not loaded here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..one_line import one_line

Signature = list[str]
_TYPE = re.compile(r"\*?k?[a-z][a-z0-9]{0,9}|\*?k?fp8[a-z0-9]{0,9}|constexpr")


def signature_of(compiled: Any) -> Signature | None:
    """Return the types of a kernel's arguments; None if any is more than a plain type."""
    types = list(getattr(compiled.src, "signature", {}).values())
    if compiled.metadata.target.backend != "cuda" or getattr(
            compiled.metadata, "tensordesc_meta", None):
        return None
    return types if plain(types) else None


def plain(types: list[Any]) -> bool:
    return all(isinstance(name, str) and _TYPE.fullmatch(name) for name in types)


def stubs(signatures: list[Signature]) -> dict[str, Any]:
    """Build the modules that are missing; `failed` says why some could not be."""
    failed = []
    try:
        from triton.backends.nvidia import driver
        from triton.runtime import build

        build._load_module_from_path = lambda *_: None  # a GPU's driver may be missing here
        with_driver = {"library_dirs": driver.library_dirs(), "include_dirs": driver.include_dirs,
                       "libraries": driver.libraries}
        build.compile_module_from_src(src=Path(driver.dirname, "driver.c").read_text(),
                                      name="cuda_utils", **with_driver)
    except Exception as error:
        return {"failed": [one_line(error)]}
    for types in signatures if hasattr(driver, "make_launcher") else ():
        try:
            if not plain(types):
                raise ValueError("not a list of types")
            text = driver.make_launcher({}, dict(enumerate(types)), None)
            build.compile_module_from_src(src=text, name="__triton_launcher", **with_driver)
        except Exception as error:
            failed.append(one_line(error))
    return {"failed": failed}

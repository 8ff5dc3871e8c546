"""Builds what Triton needs to launch kernels on NVIDIA's cards: small C modules, by the C compiler.

Triton 3.6 makes one of every signature of a kernel, later versions one for all; both make one that
speaks to the driver. Under their own keys they go to the cache folder of this process; they are
built from Triton's own text and a list of types, and not loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..one_line import one_line

Signature = list[str]
_TYPE = re.compile(r"\*?k?[a-z][a-z0-9]{0,9}|\*?k?fp8[a-z0-9]{0,9}|constexpr")


def signature_of(compiled: Any) -> Signature | None:
    """Return the types of a kernel's arguments; None where they are more than plain types."""
    types = list(getattr(compiled.src, "signature", {}).values())
    if compiled.metadata.target.backend != "cuda" or getattr(
            compiled.metadata, "tensordesc_meta", None):
        return None
    return types if plain(types) else None


def plain(types: list[Any]) -> bool:
    return all(isinstance(one, str) and _TYPE.fullmatch(one) for one in types)


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
                raise ValueError("no list of types")
            text = driver.make_launcher({}, dict(enumerate(types)), None)
            build.compile_module_from_src(src=text, name="__triton_launcher", **with_driver)
        except Exception as error:
            failed.append(one_line(error))
    return {"failed": failed}

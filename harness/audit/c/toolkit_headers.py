"""Headers and libraries that belong to the C compiler, the system or the GPU toolkit."""

from __future__ import annotations

import os
import re

from harness.audit.findings.watched_names import NAMES

_INTRINSICS = re.compile(r"(?:[a-z]?mm|avx\w*|amx\w*|fma|f16c|bmi2?|popcnt|sse\w*|gfni|vaes|sha"
                         r"|adx|lzcnt|xsave\w*|prfchw|clflushopt|wmmintrin|movdir)intrin\.h")
_SONAME = re.compile(r"^(?:lib)?(?P<name>[A-Za-z0-9_+-]+?)(?:\.so(?:\.[0-9]+)*|\.a)?$")


def is_standard_header(name: str) -> bool:
    """Return whether a header belongs to the compiler, the system, CUDA, HIP or torch."""
    name = name.removeprefix("./")
    if ".." in name.split("/") or name.startswith("/"):
        return False
    return name in NAMES["headers"] or name.startswith(tuple(NAMES["header_folders"])) \
        or _INTRINSICS.fullmatch(name) is not None


def is_standard_library(name: str) -> bool:
    """Return whether a library, by its name or file name, belongs to the compiler or the device."""
    match = _SONAME.match(os.path.basename(name.removeprefix(":")))
    return match is not None and match["name"] in NAMES["libraries"] and name.count("/") == 0

"""Keep an incumbent's profile for the verdicts on later candidates.

The profile is evidence only; no verdict depends on it. Profiling again would occupy a GPU context
that other processes of the host wait for, and give the same result for the same code.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from harness.compile import compiler_cache
from harness.compile.kernel import Kernel
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.runners.kernel_spans import CallProfile


class ProfileCache:
    """The profile of one incumbent by class, in a folder where no confined candidate can write."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        self._compiled = kernel.home.joinpath(*compiler_cache.TRITON)
        self._compiles = kernel.target.language == "triton"
        self._classes = {entry.name for entry in kernel.target.classes}
        key = hashlib.sha256(repr((
            kernel.identity, kernel.target, kernel.place.device, kernel.place.python,
            sorted(kernel.place.env.items()))).encode()).hexdigest()
        self._path = folder / f"{key}.json"

    def load(self) -> Mapping[str, CallProfile]:
        """Return the profile of the same code by class.

        It is empty if the profile of a class or the compiled code is missing: profiling makes both.
        """
        if not self._path.is_file() or (self._compiles and not self._compiled.is_dir()):
            return {}
        try:
            profiles = from_json(self._path.read_bytes(), dict[str, CallProfile])
        except (OSError, ConvertError, ValueError):
            return {}
        return profiles if self._classes <= profiles.keys() else {}

    def save(self, profiles: Mapping[str, CallProfile]) -> None:
        """Save a profile of all classes; ignore an incomplete one."""
        if self._classes <= profiles.keys():
            with contextlib.suppress(OSError):  # the next verdict then profiles again
                self._path.parent.mkdir(exist_ok=True)
                new = self._path.with_suffix(".new")
                new.write_bytes(to_json(profiles))
                new.replace(self._path)

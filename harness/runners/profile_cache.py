"""What an incumbent was seen to run, kept for the verdicts on the candidates after it.

It is evidence, and nothing is judged by it: a profile takes a context that others on the
host wait for, to say of the same code what it said before.
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
    """One incumbent's profile by class, in a folder where no confined candidate can write."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        self._compiled = kernel.home.joinpath(*compiler_cache.TRITON)
        self._compiles = kernel.target.language == "triton"
        self._classes = {one.name for one in kernel.target.classes}
        of = hashlib.sha256(repr((
            kernel.identity, kernel.target, kernel.place.device, kernel.place.python,
            sorted(kernel.place.env.items()))).encode()).hexdigest()
        self._path = folder / f"{of}.json"

    def kept(self) -> Mapping[str, CallProfile]:
        """Return what was seen of the same code, class by class; nothing where a class is missing,
        or where its compiled kernels are gone: a rehearsal makes both.
        """
        if not self._path.is_file() or (self._compiles and not self._compiled.is_dir()):
            return {}
        try:
            seen = from_json(self._path.read_bytes(), dict[str, CallProfile])
        except (OSError, ConvertError, ValueError):
            return {}
        return seen if self._classes <= seen.keys() else {}

    def keep(self, seen: Mapping[str, CallProfile]) -> None:
        """Keep a whole profile; part of one would say nothing."""
        if self._classes <= seen.keys():
            with contextlib.suppress(OSError):  # the next verdict then takes longer
                self._path.parent.mkdir(exist_ok=True)
                new = self._path.with_suffix(".new")
                new.write_bytes(to_json(seen))
                new.replace(self._path)

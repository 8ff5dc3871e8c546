"""Records the files of the Triton kernels that a watched call launches."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

files: dict[str, None] = {}


def record(frame: Any) -> None:
    """Keep the kernel's file if a frame is that of a launch, on a GPU or in the interpreter."""
    code = frame.f_code
    if code.co_name != "run" or "triton" not in code.co_filename:
        return
    kernel = getattr(getattr(frame.f_locals.get("self"), "fn", None), "__code__", None)
    if kernel is not None:
        files[kernel.co_filename] = None

"""The part of an engine's context that reads and writes tips."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from engine.context import EngineContext
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.manifest.schema import Manifest

MANIFEST = Manifest(target_op="gemm_fp8", target_backend="TRITON", target_gpu="gfx950")


def context(workspace: Path, writer: Writer, manifest: Manifest = MANIFEST) -> EngineContext:
    setup = SimpleNamespace(workspace=workspace, id="rms", manifest=manifest)
    return cast(EngineContext, SimpleNamespace(setup=setup, writer=writer,
                                               reader=Reader(workspace)))

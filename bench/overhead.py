"""Measure the share of a campaign's wall time spent in the engine, outside workers and harness.

    python bench/overhead.py [--example matmul_c]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import machine
import msgspec

from engine.campaign import setup as campaigns
from engine.manifest import load
from engine.repository.project import start_repository
from engine.run.engine import Engine

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--example", default="matmul_c")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as made:
        project = Path(made) / "project"
        shutil.copytree(EXAMPLES / args.example, project)
        start_repository(project, "start")
        loaded = msgspec.structs.replace(load.load(project / "manifest.yaml"),
                                         approval="auto")
        manifest = Path(made) / "manifest.yaml"
        manifest.write_text(load.dump(loaded, brief=True))
        workspace = Path(made) / "workspace"
        workspace.mkdir()
        setup = campaigns.create(workspace, manifest)
        engine = Engine(workspace, setup.id)
        engine.start()
        engine.join()
        if engine.error is not None:
            raise SystemExit(f"the campaign failed: {engine.error}")
    share = engine.own_s / engine.wall_s
    print(f"{args.example}: engine {engine.own_s:.2f} s of {engine.wall_s:.1f} s wall time, "
          f"{share:.1%}")
    print(machine.write("overhead", {"example": args.example, "engine_s": engine.own_s,
                                     "wall_s": engine.wall_s, "share": share}))


if __name__ == "__main__":
    main()

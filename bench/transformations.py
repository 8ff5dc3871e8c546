"""Measure what campaigns gain whose only workers are kopt's transformations and searches.

    python bench/transformations.py FOLDER --out RESULTS.jsonl [--seconds 470] [--each 90]
        [--only NAME,NAME] [--backends transform,search] [--trials 8] [--pairs 5]
        [--alone NAME,NAME]

Each case is a folder with a manifest, its task and a kernel that a person wrote. It is copied, and
`kopt run` works on it for at most `--each` seconds, without a model and without templates. A case
whose result is in RESULTS.jsonl is skipped, and none begins that would not end before `--seconds`:
call the script again until all are done. Each line has the headline with its interval, the kept
hypotheses, and the decision on each candidate.

With `--alone` there is no campaign: each named transformation that applies to a case's kernel
is judged by one verdict, with the knobs' first values.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.campaign.setup import open_campaign
from engine.journal.read import Reader
from engine.transformations import transformation_registry
from engine.transformations.transformation import DoesNotApply
from harness.formats import yaml_document

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 60.0
"""Seconds a campaign may take beyond its budget: the verdict under way, acceptance, the report."""


def main() -> int:
    args = arguments()
    ends_at = time.monotonic() + args.seconds
    done = {json.loads(line)["case"] for line in args.out.read_text().splitlines()} \
        if args.out.exists() else set()
    left = [case for case in cases(args.folder) if case.name not in done
            and (not args.only or case.name in args.only.split(","))]
    for case in left:
        if time.monotonic() + args.each + (0 if args.alone else STOP_S) > ends_at:
            print(f"{case.name}: left for the next call")
            continue
        result = alone(case, args.alone.split(",")) if args.alone else \
            run(case, args.each, args.backends.split(","), args.trials, args.pairs)
        with args.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{case.name}: " + ("; ".join(
            f"{own['transformation']} {own['headline'] or own['why']}"
            for own in result["verdicts"]) if args.alone else "; ".join(
            [f"{result['state']}, {result['headline'] or 'nothing kept'}", *result["kept"]])),
              flush=True)
    return 0


def cases(folder: Path) -> Iterator[Path]:
    """Yield the folders with a manifest."""
    yield from sorted(path.parent for path in folder.glob("*/manifest.yaml"))


def alone(case: Path, names: list[str]) -> dict[str, Any]:
    """Judge transformations of a case's kernel, each alone by one verdict."""
    task = yaml_document.parse((case / "task.yaml").read_text(), "task.yaml").value
    source, verdicts, device = (case / task["source"]).read_text(), [], ""
    with tempfile.TemporaryDirectory(prefix="kopt-transformations-") as folder:
        project = Path(folder) / case.name
        shutil.copytree(case, project)
        _commit(project)
        for name in names:
            transformation = transformation_registry.find(name)
            assert transformation is not None, name
            try:
                changed = transformation.apply(source)
            except DoesNotApply as reason:
                verdicts.append({"transformation": name, "headline": "", "why": str(reason)})
                continue
            ended = subprocess.run(
                [sys.executable, "-m", "kopt_tui", "evaluate", str(project / "manifest.yaml"),
                 "--candidate", "-", "--json"], input=changed.source, cwd=ROOT, check=False,
                capture_output=True, text=True, env=_env())
            verdict = json.loads(ended.stdout) if ended.stdout.startswith("{") else {}
            device = verdict.get("device", device)
            speedup = verdict.get("speedup")
            verdicts.append({
                "transformation": name, "what": changed.what, "headline": "" if speedup is None else
                f"{speedup:.3f}x [{verdict['speedup_low']:.3f}, {verdict['speedup_high']:.3f}]",
                "why": "" if speedup else verdict.get("rejected_reason") or verdict.get(
                    "not_judged") or next(
                    (row["note"] for row in verdict.get("rows", []) if not row["correct"]),
                    "correct, not timed" if verdict.get("correct") else ended.stderr[-300:]),
                "rows": {row["config_class"]: [row["incumbent_us"], row["latency_us"]]
                         for row in verdict.get("rows", [])}})
    return {"case": case.name, "device": device, "verdicts": verdicts}


def _commit(project: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=bench", "-c", "user.email=b@ench"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it was"]):
        subprocess.run([*git, *command], check=True)


def _env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def run(case: Path, seconds: float, backends: list[str], trials: int, pairs: int) -> dict[str, Any]:
    """Run a campaign on a copy of a case and return its result."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kopt-transformations-") as name:
        project, workspace = Path(name) / case.name, Path(name) / "workspace"
        shutil.copytree(case, project)
        manifest = yaml_document.parse((case / "manifest.yaml").read_text(), "manifest.yaml").value
        manifest |= {"approval": "auto", "max_iterations": 30,
                     "budget": {"wall_s": seconds} | ({"pairs": pairs} if pairs else {}),
                     "stop": {"no_gain_rounds": 2},
                     "pool": {"backends": backends, "slots": 4, "trials": trials}}
        (project / "manifest.yaml").write_text(yaml_document.dump(manifest))
        _commit(project)
        ended = subprocess.run(
            [sys.executable, "-m", "kopt_tui", "--workspace", str(workspace), "run", "--here",
             str(project / "manifest.yaml")], cwd=ROOT, capture_output=True, text=True,
            env=_env(), check=False, timeout=seconds + 4 * STOP_S)
        found = [path.name for path in workspace.iterdir() if (path / "manifest.yaml").exists()] \
            if workspace.exists() else []
        if not found:
            return {"case": case.name, "state": "no campaign", "headline": "", "kept": [],
                    "candidates": [], "why": ended.stderr[-500:]}
        return result(workspace, found[0], case.name, time.monotonic() - began)


def result(workspace: Path, campaign: str, case: str, seconds: float) -> dict[str, Any]:
    """Return a campaign's result from its journal."""
    setup = open_campaign(workspace, campaign)
    with closing(Reader(workspace)) as reader:
        row = next(own for own in reader.campaigns() if own.id == campaign)
        newest = {decision.candidate: decision for decision in reader.decisions(campaign)[::-1]}
        candidates = [{
            "round": own.round, "slot": own.slot, "hypothesis": own.hypothesis,
            "decision": newest[own.id].kind if own.id in newest else own.state,
            "reason": newest[own.id].reason if own.id in newest else ""}
            for own in reader.candidates(campaign)]
        failed = [f"{slot.slot} of round {slot.round}: {slot.hypothesis}: {slot.detail}"
                  for n in range(1, row.round + 1) for slot in reader.slots(campaign, n)
                  if slot.stage == "failed"]
    return {"case": case, "device": setup.device.name, "state": row.state, "reason": row.reason,
            "rounds": row.round, "seconds": round(seconds, 1), "speedup": row.speedup,
            "headline": "" if row.speedup is None else
            f"{row.speedup:.3f}x [{row.speedup_low:.3f}, {row.speedup_high:.3f}]",
            "kept": [own["hypothesis"] for own in candidates if own["decision"] == "keep"],
            "candidates": candidates, "failed": failed}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=470.0)
    parser.add_argument("--each", type=float, default=90.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--backends", default="transform,search")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--alone", default="", help="transformations to judge, each by one verdict")
    parser.add_argument("--pairs", type=int, default=0,
                        help="the most process pairs of a verdict (0: the manifest's default)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

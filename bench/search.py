"""Replay recorded search spaces: compare searches by the fraction of the optimum they find.

`bench/search.py FOLDER` prints the table and adds raw results to a file under bench/results/, so
that an interrupted run resumes. The folder holds recorded spaces and their replay.py. Optuna and
scikit-learn are measured where they are installed: `pip install optuna scikit-learn`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine
import numpy as np

import harness.search.bayesian
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space.tunable_source import Observation, Space

assert harness.search.bayesian

BUDGETS = (25, 50, 100, 200)
RESULTS = Path(__file__).parent / "results"


def space_of(recorded: Any, seed: int) -> Space:
    """Return a recorded space as kopt's, with a random configuration as its default."""
    first = recorded.configs[np.random.default_rng(seed).integers(len(recorded.configs))]
    return Space(choices={name: tuple(values) for name, values in recorded.params.items()},
                 default=dict(zip(recorded.names, first, strict=True)),
                 requires=tuple(recorded.restrictions or ()))


class Kopt:
    """kopt's strategy behind the replay's interface, without any history."""

    def __init__(self, space: Any, seed: int, history: tuple[Observation, ...] = ()) -> None:
        self.search = BayesianSearch(space_of(space, seed), seed, history)

    def ask(self) -> dict[str, Any] | None:
        return self.search.ask()

    def tell(self, config: dict[str, Any], time_ms: float | None) -> None:
        self.search.tell(config, None if time_ms is None else -math.log(time_ms))


class KoptWithPrior(Kopt):
    """Kopt, with the recordings of the same kernel on every other device as history."""

    def __init__(self, space: Any, seed: int) -> None:
        super().__init__(space, seed, history_of(space))


def history_of(space: Any) -> tuple[Observation, ...]:
    """Return the recordings of a space's kernel on the other devices."""
    replay = importlib.import_module("replay")
    others = [replay.Space(name) for name, meta in replay.META.items()
              if meta["kernel"] == space.kernel and name != space.name]
    return tuple(Observation(source=other.name, config=dict(zip(other.names, key, strict=True)),
                             latency_us=None if spent is None else 1e3 * spent)
                 for other in others for key, spent in other.times.items())


class PlainGaussianProcess:
    """The plain baseline: Matérn-5/2, expected improvement, ten random configurations first."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space, self.rng = space, np.random.default_rng(seed)
        columns = [{value: i / max(1, len(values) - 1) for i, value in enumerate(values)}
                   for values in space.params.values()]
        self.points = np.array([[column[value] for column, value in zip(columns, key, strict=True)]
                                for key in space.configs])
        self.points = self.points[:, np.ptp(self.points, axis=0) > 0]
        self.left = set(range(len(space.configs)))
        self.rows: list[int] = []
        self.spent: list[float | None] = []

    def ask(self) -> dict[str, Any] | None:
        if not self.left:
            return None
        rest = np.array(sorted(self.left))
        worked = [i for i, spent in enumerate(self.spent) if spent is not None]
        if len(self.rows) < 10 or len(worked) < 2:
            row = int(self.rng.choice(rest))
        else:
            row = int(rest[self._improvement(rest, worked).argmax()])
        self.asked = row
        return dict(zip(self.space.names, self.space.configs[row], strict=True))

    def _improvement(self, rest: np.ndarray, worked: list[int]) -> np.ndarray:
        from scipy.stats import norm
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel

        model = GaussianProcessRegressor(
            Matern(0.5, nu=2.5) + WhiteKernel(1e-3), normalize_y=True, random_state=0)
        values = np.log([self.spent[i] for i in worked])
        model.fit(self.points[[self.rows[i] for i in worked]], values)
        mean, deviation = model.predict(self.points[rest], return_std=True)
        deviation = np.maximum(deviation, 1e-9)
        z = (values.min() - mean) / deviation
        return deviation * (z * norm.cdf(z) + norm.pdf(z))

    def tell(self, config: dict[str, Any], time_ms: float | None) -> None:
        self.left.discard(self.asked)
        self.rows.append(self.asked)
        self.spent.append(time_ms)


class Tpe:
    """Optuna's multivariate TPE; illegal configurations are reported to it as failures."""

    def __init__(self, space: Any, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.optuna = space, optuna
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        self.study = optuna.create_study(sampler=sampler)

    def ask(self) -> dict[str, Any]:
        self.trial = self.study.ask()
        return {name: self.trial.suggest_categorical(name, values)
                for name, values in self.space.params.items()}

    def tell(self, config: dict[str, Any], time_ms: float | None) -> None:
        if time_ms is None:
            self.study.tell(self.trial, state=self.optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(self.trial, math.log(time_ms))


STRATEGIES: dict[str, Any] = {"random": None, "tpe": Tpe, "gp-ei": PlainGaussianProcess,
                              "kopt": Kopt, "kopt+prior": KoptWithPrior}
NEEDS = {"tpe": "optuna", "gp-ei": "sklearn"}


def replayed(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """Replay one search; return its line of the results."""
    name, space, seed, budget = job
    replay = importlib.import_module("replay")
    began = time.process_time()
    found = replay.run(STRATEGIES[name] or replay.RandomSearch, space, budget, seed)
    return {"strategy": name, "space": space, "seed": seed, "budget": budget,
            "found": [round(found[at - 1], 6) for at in BUDGETS if at <= budget],
            "cpu_ms_per_evaluation": round(1e3 * (time.process_time() - began) / budget, 3)}


def proposal_cost_ms() -> dict[str, float]:
    """Return the cost of a proposal after 180 to 219 observations in a space of 20,736 points."""
    space = Space(choices={f"K{i}": tuple(2**j for j in range(size)) for i, size
                           in enumerate((8, 8, 6, 6, 3, 3))}, requires=("K0 * K1 <= 16384",),
                  default={f"K{i}": 1 for i in range(6)})
    search, chance, costs = BayesianSearch(space, 0), random.Random(0), []
    for number in range(220):
        began = time.perf_counter()
        config = search.ask()
        if number >= 180:
            costs.append(1e3 * (time.perf_counter() - began))
        assert config is not None
        search.tell(config, None if chance.random() < 0.1 else -sum(
            abs(math.log2(float(value)) - 2) for value in config.values()) - chance.random())
    return {"configurations": len(search.table), "median_ms": round(statistics.median(costs), 2),
            "largest_ms": round(max(costs), 2)}


def show(lines: Iterable[dict[str, Any]], spaces: list[str]) -> None:
    """Print each strategy's means over spaces, and its worst space after 100 trials."""
    by: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        if "found" in line:
            by.setdefault(line["strategy"], {}).setdefault(line["space"], []).append(line["found"])
    print("| strategy | spaces | seeds | " + " | ".join(map(str, BUDGETS)) + " | worst at 100 |")
    print("|---|---|---|" + "---|" * len(BUDGETS) + "---|")
    for strategy, seen in by.items():
        if not set(seen) <= set(spaces):
            continue
        cells = []
        for at in range(len(BUDGETS)):
            means = [statistics.fmean(found[at] for found in runs if len(found) > at)
                     for runs in seen.values() if any(len(found) > at for found in runs)]
            cells.append(f"{statistics.fmean(means):.3f}" if len(means) == len(seen) else "")
        worst = min(((statistics.fmean(runs_at_100), space) for space, runs in seen.items()
                     if (runs_at_100 := [found[2] for found in runs if len(found) > 2])),
                    default=None)
        print(f"| {strategy} | {len(seen)} | {min(map(len, seen.values()))} | "
              + " | ".join(cells) + (f" | {worst[0]:.3f} {worst[1]} |" if worst else " | |"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the recorded spaces, with their replay.py")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=100, choices=BUDGETS)
    parser.add_argument("--out", type=Path,
                        default=RESULTS / f"search-{time.strftime('%Y-%m-%d')}.jsonl")
    args = parser.parse_args()
    sys.path.insert(0, str(args.folder.resolve()))
    replay = importlib.import_module("replay")
    spaces = replay.load_names()
    kernels = [meta["kernel"] for meta in replay.META.values()]
    known = {name for name, meta in replay.META.items() if kernels.count(meta["kernel"]) > 1}
    done = [json.loads(line) for line in args.out.read_text().splitlines()] \
        if args.out.exists() else []
    finished = {(line["strategy"], line["space"], line["seed"]) for line in done
                if line.get("budget", 0) >= args.budget}
    strategies = [name for name in args.strategies.split(",")
                  if name not in NEEDS or importlib.util.find_spec(NEEDS[name])]
    jobs = [(name, space, seed, args.budget) for seed in range(args.seeds) for name in strategies
            for space in spaces if name != "kopt+prior" or space in known]
    jobs = [job for job in jobs if job[:3] not in finished]
    with args.out.open("a") as out, multiprocessing.Pool(os.cpu_count()) as pool:
        if not done:
            print(json.dumps({"machine": machine.describe(), "proposal": proposal_cost_ms()}),
                  file=out, flush=True)
        for line in pool.imap_unordered(replayed, jobs):
            print(json.dumps(line), file=out, flush=True)
    lines = [json.loads(line) for line in args.out.read_text().splitlines()]
    print(f"proposal: {lines[0]['proposal']}")
    latest = {(line["strategy"], line["space"], line["seed"]): line for line in sorted(
        (line for line in lines if "found" in line), key=lambda line: line["budget"])}
    show(sorted(latest.values(), key=lambda line: list(STRATEGIES).index(line["strategy"])), spaces)


if __name__ == "__main__":
    main()

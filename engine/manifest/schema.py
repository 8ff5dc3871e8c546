"""The manifest of a campaign: what to make faster, how to judge it, how much to spend on it.

It has every field of the operator-optimization manifest (target_op ... created) plus kopt's own;
only `target_op` has no default. Names of times end in `_s` (seconds), those of percentages in
`_pct`; shares are fractions of 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from engine.manifest.pool_schema import Count, ManifestPart, PoolSpec, Seconds, Text
from harness.benchmark.spec.command_target import CheckColumn, Combine, Metric, Scoring
from harness.tasks.target import MAX_GPUS
from harness.timing.plan import Cache, Plan, Score

MAX_ITERATIONS = 120
"""`max_iterations` must be below this: more rounds cost more than they gain."""

Approval = Literal["auto", "review", "flagged"]
Shape = str | tuple[int, ...] | dict[str, int]


class TargetSpec(ManifestPart, frozen=True, kw_only=True):
    """What is measured: a `kernel` described by a task file, or the project's benchmark `command`.

    A command writes `csv`. `check` is its correctness column, if needed with a rule (`err == 0`).
    `metrics` are its columns of numbers. A metric's name states its unit or, by a word such as
    `latency` or `throughput`, which direction is better; if it does not, the metric is a mapping
    that states unit or direction. `configs` names the columns whose values make a config class; a
    condition such as `context <= 1024` divides rows in two. Without it each row is a class.
    `ignore` names columns without meaning. `row_command` runs the benchmark on one row, with the
    row's values in its text (`python bench.py --m {m}`): with it gains are checked on values that
    no row has, and on a GPU with `score: kernel` the kernel time of rows decides.
    """

    kind: Literal["kernel", "command"] = "kernel"
    task: Text = "task.yaml"
    knobs: str = ""
    """A tuning table of the project: JSON with `triton.Config`s, or configurations by batch size as
    vLLM has them. Its values become the choices of the knobs, its entries the first trials."""
    csv: str = ""
    quick_csv: str = ""
    """The file that the quick command writes, if it differs from `csv`."""
    row_command: str = ""
    check: str | CheckColumn = ""
    metrics: tuple[Text | Metric, ...] = ()
    configs: tuple[Text, ...] = ()
    core: tuple[Text, ...] = ()
    """The most important classes, named as in verdicts; by default chosen from the baseline."""
    ignore: tuple[Text, ...] = ()
    combine: Combine = "auto"
    """How a row's metrics become one cost: `step` sums those of one unit, `geometric` averages."""
    scoring: Scoring = "geometric"
    """How the rows become one score; a row that fails its check makes it 0."""
    weights: str = ""
    """A CSV file of the calls of each shape, as `kopt trace` writes it, read at a campaign's start:
    config columns (a kernel's dimensions) and `calls`, the weight of rows in the score."""
    timeout_s: Seconds = 1800.0
    """Time limit of one run of a command."""


class GpuSpec(ManifestPart, frozen=True, kw_only=True):
    """The devices of a campaign, and how long it waits for an idle one.

    `device` is "auto", "cpu", "cuda:0", a UUID, or several with commas; at most `cards` of them are
    used. A busy device is checked again after 15 seconds, then each time after twice as long, up to
    `retry_s`, and for `limit_s` in all. `count` is how many cards of one model a benchmark needs at
    a time: each run gets that many, all locked, in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES. A
    kernel's task says `num_gpus` instead.
    """

    device: Text = "auto"
    count: Annotated[int, Meta(ge=1, le=MAX_GPUS)] = 1
    cards: Annotated[int, Meta(ge=1, le=64)] | None = None
    retry_s: Seconds = 600.0
    limit_s: Seconds = 3600.0


class DecisionSpec(ManifestPart, frozen=True, kw_only=True):
    """When a gain counts; `margin`, `alpha` and `tolerance` are shares: 0.01 is one percent.

    On a GPU `score` chooses the time that is judged (a benchmark's kernel time is measured only
    with `target.row_command`), `cache` the state of the last-level cache.
    """

    margin: Annotated[float, Meta(ge=0, le=0.5)] = 0.01
    alpha: Annotated[float, Meta(gt=0, le=0.2)] = 0.05
    tolerance: Annotated[float, Meta(ge=0, le=0.05)] = 0.01
    score: Score = "kernel"
    cache: Cache = "cold"
    looks: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    def plan(self, alpha: float) -> Plan:
        """Return the plan of a verdict with its share `alpha` of the campaign's error rate."""
        return Plan(alpha=alpha, margin=self.margin, tolerance=self.tolerance, score=self.score,
                    cache=self.cache)


class BudgetSpec(ManifestPart, frozen=True, kw_only=True):
    """What a campaign may spend over all its runs; `pairs` bounds the process pairs of a verdict.

    Workers are stopped before `wall_s` ends, early enough to judge the changes they made.
    """

    wall_s: Seconds | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    """Limit of what attempts of `pool.cli` cost, as each of its commands declares it."""
    cost_usd: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Limit in US dollars of what models' answers cost. It cannot be enforced for a model
    whose price LiteLLM does not know."""
    pairs: Annotated[int, Meta(ge=1, le=200)] | None = None
    disk_gb: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Limit of the campaign's folder in GB."""


class EndToEndSpec(ManifestPart, frozen=True, kw_only=True):
    """What follows when the whole program is significantly slower with the best."""

    rollback: bool = False
    """Roll back commit by commit until it is not slower; if false, the report recommends that."""


class LimitSpec(ManifestPart, frozen=True, kw_only=True):
    """Time limits of commands that have none of their own, seconds.

    A benchmark and the tests beside it have `target.timeout_s`, the whole program `e2e_timeout_s`.
    """

    test_s: Seconds = 900.0
    """One run of a kernel's tests."""
    format_s: Seconds = 120.0


class StopSpec(ManifestPart, frozen=True, kw_only=True):
    """When a campaign ends before its last round."""

    consecutive_regressions: Count = 5
    efficiency_pct: Annotated[float, Meta(gt=0, le=100)] | None = None
    no_gain_rounds: Count | None = None


class Manifest(ManifestPart, frozen=True, kw_only=True):
    """A campaign's manifest; only `target_op` is required.

    Every command, also a worker's, runs with `sh -c` if its text needs a shell (operators,
    redirections, variables, globs), else directly; `NAME=value` before it sets a variable.
    """

    target_op: Text
    target_backend: str = ""
    target_lang: str = ""
    target_gpu: str = ""
    target_shapes: str | tuple[Shape, ...] = "all"
    primary_metric: Text = "latency"
    """The benchmark's metrics that enter the score, separated by commas; others are shown."""
    performance_target: str | None = None
    project_skill: str | None = None
    """The project's own notes for coding agents, which their prompts contain: a file, a folder with
    a SKILL.md, or the name of such a folder."""
    execution_mode: Literal["repo", "workspace"] = "repo"
    """Work on a clone of the project, or on a copy of the files that the kernel needs."""
    extract: tuple[str, ...] = ()
    """Globs of further files for such a copy, besides the kernel's folder, tests and benchmarks."""
    kernel_source: str = ""
    test_command: str = ""
    """Runs on each candidate before it is timed."""
    full_test_command: str = ""
    """Runs once on the baseline, and on the best whenever it is measured against the baseline."""
    benchmark_command: str = ""
    quick_command: str = ""
    representative_shapes: str | tuple[Shape, ...] | None = None
    git_commit: bool = True
    git_branch: Text = "auto"
    """The project's branch for kept commits: a name, `auto` for `optimize/` and the campaign's
    name, or `none` for the branch that is checked out at the start. With `none` the checked-out
    files are updated too; while one of them has uncommitted changes, the branch does not move."""
    max_iterations: Annotated[int, Meta(ge=1, lt=MAX_ITERATIONS)] | None = None
    created: str = ""

    project: Text = "."
    """Folder of the project; `load` makes it absolute against the manifest's own folder."""
    target: TargetSpec = TargetSpec()
    edit: tuple[str, ...] = ()
    """Globs of the files that a candidate may change; empty means the target's source file."""
    frozen: tuple[str, ...] = ()
    """Globs of files that a candidate must not change; for a kernel, empty means the reference and
    the task file."""
    knobs: Literal["keep", "inline", "none"] = "keep"
    """What becomes of knobs that `kopt new` proposed, which only the campaign's clone declares:
    `kopt merge` keeps the declarations, or writes their values in their places (inline)."""
    carry: tuple[str, ...] = ()
    """Globs of built files that git ignores and that are copied into every checkout."""
    python: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    setup_command: str = ""
    build_command: str = ""
    format_command: str = ""
    e2e_command: str = ""
    """The whole program that uses the kernel; runs at the end with the baseline and the best."""
    e2e_metric: Text | Metric | None = None
    """The name of a number that the whole program prints; without one its wall time counts."""
    e2e_timeout_s: Seconds = 3600.0
    e2e: EndToEndSpec = EndToEndSpec()
    approval: Approval = "flagged"
    pool: PoolSpec = PoolSpec()
    gpu: GpuSpec = GpuSpec()
    decision: DecisionSpec = DecisionSpec()
    budget: BudgetSpec = BudgetSpec()
    stop: StopSpec = StopSpec()
    limits: LimitSpec = LimitSpec()


def publishes_commits(manifest: Manifest) -> bool:
    """Return whether kept commits go to the project; an extracted copy's do not fit there."""
    return manifest.git_commit and manifest.git_branch != "none" \
        and manifest.execution_mode == "repo"

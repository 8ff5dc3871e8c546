"""A campaign's spec: what to make faster, how to judge it, how much to spend on it.

Every field of the operator-optimization manifest (target_op ... created) plus kopt's own; only
`target_op` has no default. Seconds, shares of one and percents are named in the fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from harness.timing.plan import Cache, Plan, Score

MAX_ITERATIONS = 120
"""A practical ceiling of cost against benefit: rounds must stay below it."""

Text = Annotated[str, Meta(min_length=1, max_length=4000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Approval = Literal["auto", "review", "flagged"]
Shape = str | tuple[int, ...] | dict[str, int]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common to all parts of a manifest: frozen, told by name, closed to unknown keys."""


class MetricSpec(_Part, frozen=True, kw_only=True):
    """A column of numbers; its unit says which direction is better, or `direction` does.

    `weight` is its share where several are combined: work for a rate, calls for a time.
    """

    name: Text
    unit: str = ""
    direction: Literal["lower", "higher"] | None = None
    weight: Annotated[float, Meta(gt=0)] = 1.0


class CheckSpec(_Part, frozen=True, kw_only=True):
    """The correctness column, and what it must hold: `== 0`, `<= 1e-3`, `PASS|OK`."""

    column: Text
    rule: str = ""


class TargetSpec(_Part, frozen=True, kw_only=True):
    """What is measured: a `kernel` by its task file, or the user's own benchmark `command`.

    A command's benchmark writes `csv`; `check` is its correctness column, in one line also with
    what it must hold (`err == 0`), `metrics` its numbers, of which a name alone says the unit or,
    by a word such as `latency` or `throughput`, which direction is better; others need it told.
    `configs` names the columns that make a config class, whole or cut as in `context <= 1024` (each
    row is one of its own without), `ignore` those that say nothing.
    """

    kind: Literal["kernel", "command", "schedule"] = "kernel"
    task: Text = "task.yaml"
    csv: str = ""
    quick_csv: str = ""
    """Where the quick command writes, if it is another file."""
    check: str | CheckSpec = ""
    metrics: tuple[Text | MetricSpec, ...] = ()
    configs: tuple[Text, ...] = ()
    core: tuple[Text, ...] = ()
    """Names of the classes that matter most, as verdicts have them; found in the baseline."""
    ignore: tuple[Text, ...] = ()
    combine: Literal["auto", "step", "geometric"] = "auto"
    """How a row's metrics make one: a step's sum, where they are of one unit, or their mean."""
    scoring: Literal["geometric", "total"] = "geometric"
    """How rows make one score; a row that fails makes it 0."""
    weights: str = ""
    """A CSV file of how often each shape is called, as a trace counts it, read when a campaign
    starts: config columns (a kernel's dimensions) and `calls`, the weight of rows in the score."""
    timeout_s: Seconds = 1800.0
    """What one run of a command may take."""


class Cli(_Part, frozen=True, kw_only=True):
    """Any command as a worker; {prompt}, {worktree} and {python} in it are filled in."""

    name: Text
    command: Text
    env: tuple[Text, ...] = ()
    """Names of the variables it may see, beyond the few every worker gets."""
    network: bool = True
    gpu: bool = False
    """Whether it may see the cards: what it runs there waits for no gate, and voids what is timed
    meanwhile.
    """
    timeout_s: Seconds = 1800.0
    cost: Annotated[float, Meta(ge=0)] = 0.0
    """What one attempt costs, in the unit of `budget.cost`; declared, as no worker is believed."""


class PoolSpec(_Part, frozen=True, kw_only=True):
    """The slots of a round and the workers that fill them; None leaves the number to kopt."""

    mode: Literal["mixed", "fixed", "planned"] = "mixed"
    slots: Annotated[int, Meta(ge=1, le=64)] | None = None
    workers: Annotated[int, Meta(ge=1, le=256)] | None = None
    min_workers: Annotated[int, Meta(ge=1, le=256)] = 8
    workers_per_gpu: Annotated[int, Meta(ge=1, le=64)] = 4
    backends: tuple[str, ...] = ("search", "split", "rewrite-template", "inbox")
    trials: Count = 24
    """Trials of one search slot."""
    cli: tuple[Cli, ...] = ()
    worker_timeout_s: Seconds = 1800.0
    skip_profile: bool = False
    """Plan from what was measured alone: no compiler's remarks, no look at the machine's limits."""
    selftest_iterations: Count | None = None
    """What KOPT_SELFTEST_ITERATIONS tells workers of how often to repeat what they try out
    themselves; verdicts do not look at it."""


class GpuSpec(_Part, frozen=True, kw_only=True):
    """Which devices ("auto", "cpu", "cuda:0", a UUID, several with commas) and how long to wait for
    an idle one. A campaign spreads over `cards` of them at most.
    """

    device: Text = "auto"
    cards: Annotated[int, Meta(ge=1, le=64)] | None = None
    retry_s: Seconds = 600.0
    limit_s: Seconds = 3600.0


class DecisionSpec(_Part, frozen=True, kw_only=True):
    """When a gain counts: shares of one, so a margin of 0.01 is one percent.

    On a GPU `score` says which time carries the interval, `cache` how calls find the last cache.
    """

    margin: Annotated[float, Meta(ge=0, le=0.5)] = 0.01
    alpha: Annotated[float, Meta(gt=0, le=0.2)] = 0.05
    tolerance: Annotated[float, Meta(ge=0, le=0.05)] = 0.01
    score: Score = "kernel"
    cache: Cache = "cold"
    looks: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    def plan(self, alpha: float) -> Plan:
        """Return how a verdict is to look, at its own share of the campaign's error rate."""
        return Plan(alpha=alpha, margin=self.margin, tolerance=self.tolerance, score=self.score,
                    cache=self.cache)


class BudgetSpec(_Part, frozen=True, kw_only=True):
    """What a campaign may spend over all its runs; `pairs` bounds the process pairs of a verdict.

    Ahead of the end of `wall_s` workers are ended in time to judge what they captured.
    """

    wall_s: Seconds | None = None
    trials: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0)] | None = None
    pairs: Annotated[int, Meta(ge=1, le=200)] | None = None
    disk_gb: Annotated[float, Meta(gt=0)] | None = None
    """What the campaign's folder may take."""


class StopSpec(_Part, frozen=True, kw_only=True):
    """When a campaign ends before its rounds do."""

    consecutive_regressions: Count = 5
    efficiency_pct: Annotated[float, Meta(gt=0, le=100)] | None = None
    no_gain_rounds: Count | None = None


class Manifest(_Part, frozen=True, kw_only=True):
    target_op: Text
    target_backend: str = ""
    target_lang: str = ""
    target_gpu: str = ""
    target_shapes: str | tuple[Shape, ...] = "all"
    primary_metric: Text = "latency"
    """Those of a benchmark's metrics, with commas, that enter its score; others are shown."""
    performance_target: str | None = None
    project_skill: str | None = None
    execution_mode: Literal["repo", "workspace"] = "repo"
    """On a clone of the project, or on a copy of what the kernel needs of it."""
    extract: tuple[str, ...] = ()
    """Globs of what such a copy has besides the kernel's folder, tests and benchmarks."""
    kernel_source: str = ""
    test_command: str = ""
    """Run on each candidate before it is timed."""
    full_test_command: str = ""
    """Run on the baseline, once, and on the best whenever it is measured against the baseline."""
    benchmark_command: str = ""
    quick_command: str = ""
    representative_shapes: str | tuple[Shape, ...] | None = None
    git_commit: bool = True
    git_branch: Text = "auto"
    """The branch of the project that kept commits go to: `optimize/` and the campaign's name, or
    one of this name; none with `none`."""
    max_iterations: Annotated[int, Meta(ge=1, lt=MAX_ITERATIONS)] | None = None
    created: str = ""

    project: Text = "."
    """Folder of the project; `load` makes it absolute against the manifest's own folder."""
    target: TargetSpec = TargetSpec()
    edit: tuple[str, ...] = ()
    """Globs of what a candidate may change; empty means the target's source file."""
    frozen: tuple[str, ...] = ()
    """Globs of what it must not; empty means the reference and the task file."""
    carry: tuple[str, ...] = ()
    """Globs of built files that git ignores and every checkout is to have, as copies."""
    python: str | None = None
    env: dict[str, str] = {}
    setup_command: str = ""
    build_command: str = ""
    format_command: str = ""
    e2e_command: str = ""
    """The whole program that the kernel is a part of, run with the best and without it at the end.
    """
    e2e_metric: Text | MetricSpec | None = None
    """A number that it prints after this name; its wall time counts without."""
    e2e_timeout_s: Seconds = 3600.0
    approval: Approval = "flagged"
    pool: PoolSpec = PoolSpec()
    gpu: GpuSpec = GpuSpec()
    decision: DecisionSpec = DecisionSpec()
    budget: BudgetSpec = BudgetSpec()
    stop: StopSpec = StopSpec()


def publishes(manifest: Manifest) -> bool:
    """Tell whether kept commits go to the project: those of an extracted copy are of no use there.
    """
    return manifest.git_commit and manifest.git_branch != "none" \
        and manifest.execution_mode == "repo"

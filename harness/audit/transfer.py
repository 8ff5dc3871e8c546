"""Does a gain carry over from a benchmark to training or serving?

A benchmark passes the same tensor objects in every call. A training step passes new ones, except
for its weights, whose version changes at every optimizer step. So a cache may recognise weights
only:

- K1 kernel-internal, K2 layout variants, K3 fusion, K4 data flow inside one call: real gains
- W1 a cache of weights, keyed by identity, version and shape: real, but worth at most what
  preparing a weight costs in a step
- W2 a cache of one activation, gradient or scale; W3 a memo over the other inputs as a whole: no
  gain outside the benchmark, even if the key has other parts

The proof is a trace over steps with fresh activations and updated weights: no hits on anything
else, and weight hits in at least half of the steps. Grouped operations must not assume the sizes of
groups. Triton's own autotune cache is exempt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from harness.audit import skew
from harness.audit.c.source import CSource
from harness.audit.findings import sighting
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import C_SUFFIXES, PYTHON_SUFFIXES, Changes
from harness.audit.python import delegation
from harness.audit.python.cache_keys import CacheKey
from harness.audit.static import AuditedChange, AuditedTree, key_finding
from harness.formats.text import plain
from harness.tasks.target import Target
from harness.verdict import Finding, TraceStep, Transfer, TransferBucket, TransferDecision

TRACE_STEPS = 8
LEAST_HIT_RATE = 0.5
FOREIGN = ("files", "frame-walk", "hidden-code", "network", "patched", "timing")
"""The rules by which new code of a project's kernel is flagged."""
_WEIGHT = re.compile(r"w|w[0-9]+|w_\w+|\w+_w|w[qkvo]|w(?:up|down|gate|qkv|out|in)|\w*weights?\w*"
                     r"|gamma|beta|bias|\w+_bias|scale_w|w_?scales?|embedding|emb|kernel_w",
                     re.IGNORECASE)
_LAYOUT = frozenset({"stride", "is_contiguous", "contiguous", "transpose", "permute", "T", "mT"})
_SAVED = frozenset({"save_for_backward", "saved_tensors", "saved_for_forward"})


def looks_like_weight(name: str) -> bool:
    """Return whether an argument's name suggests a weight: w, weight, gamma, bias, scale_w, ..."""
    return _WEIGHT.fullmatch(name) is not None


def transfer(change: AuditedChange, *, weights: Collection[str] | None = None,
             trace: Sequence[TraceStep] | None = None) -> Transfer:
    """Audit what a candidate keeps between calls and the baseline does not.

    `weights` names the arguments that are weights; without it they are guessed from their names.
    A traced run can make the result worse than the sources suggest, never better.
    """
    keys = change.new_keys()
    declared = frozenset(weights) if weights is not None else None
    bucket = _bucket(change.target, keys, declared) or \
        _kernel_bucket(change.candidate, change.baseline)
    steps = tuple(trace) if trace is not None else ()
    if any(step.other_hits > 0 for step in steps) and bucket not in ("W2", "W3"):
        bucket = "W3"
    elif any(step.weight_hits > 0 for step in steps) and bucket.startswith("K"):
        bucket = "W1"
    assumed = tuple(s.place + ": " + s.what for s in _new_skew(change))
    decision, reason = _decide(bucket, keys, steps, assumed, trace is not None)
    return Transfer(
        bucket=bucket, decision=decision, reason=plain(reason, 600),
        cache_keys=tuple(_shown(key) for key in keys[:20]), id_audit=_id_audit(keys, declared),
        hit_rates=steps if bucket.startswith("W") else None, skew=assumed[:20])


def transfer_of_project(op: str, candidate: Path, baseline: Path,
                        ) -> tuple[list[Finding], Transfer | None]:
    """Audit a project with its own benchmark, where no arguments are declared.

    A patch without a cache changes the kernel only. A cache of something named like a weight counts
    as a cache of weights. Any other cache is flagged for a person to check, and so is the use of
    files, clocks and the like, which may be honest in a project. Returns the findings, and the
    transfer: None if nothing is edited, or if an edited file is not a source, cannot be audited or
    has a cache of anything but weights.
    """
    changes = Changes(candidate, baseline)
    edited = dict.fromkeys((*changes.touched, *changes.replaced))
    sources = [path for path in edited if path.endswith(PYTHON_SUFFIXES + C_SUFFIXES)]
    if not sources:
        return [], None
    target = Target(op=op, language="c" if sources[0].endswith(C_SUFFIXES) else "python",
                    source=sources[0], entry="", reference="", args=(), classes=())
    change = AuditedChange(target, changes)
    flags = [replace(finding, severity="flag") for finding in change.findings()
             if finding.rule in FOREIGN and finding.severity != "note"]
    if len(sources) < len(edited) or any(flag.rule == "hidden-code" for flag in flags):
        return flags, None
    result = transfer(change)
    if result.bucket in ("W2", "W3"):
        return [*flags, *sighting.findings([key_finding(key) for key in change.new_keys()])], None
    finding = result.finding()
    return [*flags, *([finding] if finding is not None else [])], result


def _bucket(target: Target, keys: Sequence[CacheKey], weights: frozenset[str] | None,
            ) -> TransferBucket | None:
    """Return the worst bucket among the keys, None without keys."""
    worst: TransferBucket | None = None
    inputs = {a.name for a in target.args if a.kind in ("input", "inout")}
    others = {name for name in inputs if not _is_weight(name, weights)}
    for key in keys:
        non_weights = {name for name in key.args if not _is_weight(name, weights)}
        if not non_weights and key.args:
            worst = worst or "W1"
        elif (others and others <= non_weights) or len(non_weights) > 1 or non_weights != key.args:
            return "W3"
        else:
            worst = "W2"
    return worst


def _is_weight(name: str, weights: frozenset[str] | None) -> bool:
    return looks_like_weight(name) if weights is None else name in weights


def _kernel_bucket(candidate: AuditedTree, baseline: AuditedTree) -> TransferBucket:
    """Return the bucket of a real gain: saved for backward, fewer launches, layouts, or other."""
    if _count(candidate, _SAVED) > _count(baseline, _SAVED):
        return "K4"
    before, after = _launches(baseline), _launches(candidate)
    if 0 < after < before:
        return "K3"
    return "K2" if _count(candidate, _LAYOUT) > _count(baseline, _LAYOUT) else "K1"


def _count(side: AuditedTree, names: Collection[str]) -> int:
    return sum(isinstance(node, ast.Attribute) and node.attr in names
               for module in side.modules.values() for node in module.nodes)


def _launches(side: AuditedTree) -> int:
    """Count the kernel launches and library calls in the source."""
    module = side.modules.get(side.target.source)
    if module is None:
        return 0
    path = delegation.EntryPath(module, side.target.entry)
    return len(path.launches()) + len(list(path.library()))


def _new_skew(change: AuditedChange) -> list[Sighting]:
    if not skew.is_grouped(change.target):
        return []
    return sighting.fresh(_skew_of(change.candidate), _skew_of(change.baseline))


def _skew_of(side: AuditedTree) -> list[Sighting]:
    sightings = [s for module in side.modules.values() for s in skew.of_python(module)]
    source = side.target.source
    if source.endswith(C_SUFFIXES) and (data := side.tree.read(source)) is not None:
        sightings += skew.of_c(CSource(data, source))
    return sightings


def _decide(bucket: TransferBucket, keys: Sequence[CacheKey], steps: Sequence[TraceStep],
            assumed: Sequence[str], is_traced: bool) -> tuple[TransferDecision, str]:
    where = _shown(keys[0]) if keys else "the trace"
    if bucket in ("W2", "W3"):
        hits = sum(step.other_hits for step in steps)
        seen = f"; {hits} hits with fresh tensors" if hits else ""
        return "REJECT-as-overfit", \
            f"{bucket}: recognises a tensor that is not a weight, which never repeats in real " \
            f"use: {where}{seen}"
    if bucket == "W1":
        hit = sum(step.weight_hits > 0 for step in steps)
        if steps and hit < LEAST_HIT_RATE * len(steps):
            return "REJECT-as-overfit", f"W1: weights hit in {hit} of {len(steps)} steps: {where}"
        kinds = {kind for key in keys for kind in key.kinds}
        doubts = [] if "_version" in kinds or not keys else ["no version in the key: stale after "
                                                             "an optimizer step"]
        if len(steps) < TRACE_STEPS:
            doubts.append(f"traced over {len(steps)} steps, not {TRACE_STEPS}" if is_traced
                          else "not traced over steps")
        return "ACCEPT-with-asterisk", "; ".join(
            [f"W1: a cache of weights; its gain is at most the time of their preparation: {where}",
             *doubts, *assumed[:1]])
    if assumed:
        return "ACCEPT-with-asterisk", f"assumes the sizes of groups: {assumed[0]}"
    return "ACCEPT-as-real", f"{bucket}: nothing is kept between calls"


def _id_audit(keys: Sequence[CacheKey], weights: frozenset[str] | None) -> str:
    """Return which arguments are identified by what, and which of them are weights."""
    if not keys:
        return "no cache key contains a tensor's identity"
    parts: dict[str, set[str]] = {}
    for key in keys:
        for probe in key.probes:
            for name in sorted(probe.args) or ["?"]:
                parts.setdefault(name, set()).add(probe.kind)
    named = [f"{name} ({'weight' if _is_weight(name, weights) else 'not a weight'}) by "
             f"{', '.join(sorted(kinds))}" for name, kinds in sorted(parts.items())]
    return plain("; ".join(named), 400)


def _shown(key: CacheKey) -> str:
    return plain(f"{key.file}:{key.line}: {' '.join(key.text.split())}", 200)

"""What a cache recognises decides whether a gain carries over to real use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.audit.transfer import looks_like_weight, transfer, transfer_of_project
from harness.formats.json_codec import from_json, to_json
from harness.tasks.target import Arg, Target
from harness.verdict import TraceStep, Transfer
from tests.support.judging.audit_case import TRITON, audited_change, c, target, trees, triton

WEIGHTS = """_packed = {}

def packed(w):
    key = (id(w), w._version, w.shape)
    if key not in _packed:
        _packed[key] = w.contiguous()
    return _packed[key]

def norm(x, weight, out):
    norm_kernel[(1,)](x, packed(weight), out)
"""
GROUPED = TRITON.replace("cols, BLOCK: tl.constexpr", "cols, M_per_group: tl.constexpr, BLOCK: "
                         "tl.constexpr")
PYTHON = {
    # name: (source, bucket, decision, severity of the finding)
    "nothing remembered": (TRITON + "\nTILE = 4\n", "K1", "ACCEPT-as-real", None),
    "autotuned": (TRITON.replace("@triton.jit", "@triton.autotune(configs=[triton.Config({'BLOCK': "
                                 "64})], key=['cols'])\n@triton.jit"), "K1", "ACCEPT-as-real",
                  None),
    "layout": (triton("if not x.is_contiguous(): rows = x.stride(0)"), "K2", "ACCEPT-as-real",
               None),
    "saved for its backward": (triton(head="class N(torch.autograd.Function):\n    def forward("
                                      "ctx, x):\n        ctx.save_for_backward(x)"), "K4",
                               "ACCEPT-as-real", None),
    "weights by version": (triton(entry=WEIGHTS), "W1", "ACCEPT-with-asterisk", "flag"),
    "weights without a version": (triton(entry=WEIGHTS.replace("w._version, ", "")), "W1",
                                  "ACCEPT-with-asterisk", "flag"),
    "an activation among the inputs": (triton(entry=WEIGHTS.replace("packed(weight)", "packed(x)")),
                                       "W3", "REJECT-as-overfit", "reject"),
    "an activation that is called weight": (
        triton("weight = x\nif id(weight) in _c: return", "_c = {}"), "W3", "REJECT-as-overfit",
        "reject"),
    "an activation with its version": (triton("k = id(x), x._version\nif k in _c: return",
                                              "_c = {}"), "W3", "REJECT-as-overfit", "reject"),
    "weight and activation together": (triton("if (id(weight), x.data_ptr()) in _c: return",
                                              "_c = {}"), "W3", "REJECT-as-overfit", "reject"),
    "an output": (triton("if out.data_ptr() in _c: return", "_c = {}"), "W2", "REJECT-as-overfit",
                  "reject"),
    "a graph for each set of buffers": (triton(
        "k = x.data_ptr(), weight.data_ptr(), out.data_ptr()\n"
        "if k not in _graphs: _graphs[k] = capture(x, weight, out)\n_graphs[k].replay()",
        "_graphs = {}"), "W3", "REJECT-as-overfit", "reject"),
    "last seen": (triton("global _last\nif x is _last: return\n_last = x", "_last = None"), "W3",
                  "REJECT-as-overfit", "reject"),
    "attribute of the function": (triton("if norm.key == x.data_ptr(): return\n"
                                         "norm.key = x.data_ptr()"), "W3", "REJECT-as-overfit",
                                  "reject"),
    "arguments in a row": (triton(entry="_c = {}\n\ndef norm(*args):\n    k = tuple(id(a) for a in "
                                  "args)\n    if k in _c: return\n    norm_kernel[(1,)](*args)\n"),
                           "W3", "REJECT-as-overfit", "reject"),
    "scratch by shape": (triton("t = _c.setdefault(x.shape, torch.empty_like(x))", "_c = {}"), "K1",
                         "ACCEPT-as-real", None),
}
C_SOURCES = {
    "static scratch": (c("static float *t; if (!t) t = out;"), "K1", None),
    "packed weights": (c("static const float *w; if (weight != w) w = weight;"), "W1", "flag"),
    "last input": (c("static const float *last; if (x == last) return; last = x;"), "W3", "reject"),
    "last input in a namespace": (c("if (x == last) return; last = x;",
                                    "namespace {\nconst float *last;\n}"), "W3", "reject"),
    "last input in extern C": (c("if (x == last) return; last = x;",
                                 'extern "C" {\nconst float *last;\n}'), "W3", "reject"),
}


def audit(folder: Path, source: str, task: Target | None = None, **more: object) -> Transfer:
    wanted = task or target()
    change = audited_change(wanted, *trees(folder, {wanted.source: source}))
    return transfer(change, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PYTHON)
def test_transfer_bucket_decides_acceptance(tmp_path: Path, name: str) -> None:
    source, bucket, decision, severity = PYTHON[name]
    audited = audit(tmp_path, source)
    assert (audited.bucket, audited.decision) == (bucket, decision), audited
    found = audited.finding()
    assert (found.severity if found else None) == severity
    assert (audited.hit_rates is None) == bucket.startswith("K")
    assert bool(audited.cache_keys) == bucket.startswith("W")


@pytest.mark.parametrize("name", C_SOURCES)
def test_pointers_kept_in_c_decide_the_bucket(tmp_path: Path, name: str) -> None:
    source, bucket, severity = C_SOURCES[name]
    audited = audit(tmp_path, source, target("c"))
    found = audited.finding()
    assert (audited.bucket, found.severity if found else None) == (bucket, severity), audited


def test_fewer_launches_count_as_fusion(tmp_path: Path) -> None:
    two = triton("norm_kernel[(rows,)](x, weight, out, cols, BLOCK=64)")
    fused = transfer(audited_change(target(), *trees(
        tmp_path, {"kernel.py": TRITON}, {"kernel.py": two})))
    assert (fused.bucket, fused.decision) == ("K3", "ACCEPT-as-real")


def test_transfer_names_cache_key_and_arguments(tmp_path: Path) -> None:
    audited = audit(tmp_path, triton(entry=WEIGHTS))
    assert any(key.startswith("kernel.py:") and "if key not in _packed" in key
               for key in audited.cache_keys)
    assert "weight (weight) by _version, id" in audited.id_audit
    assert audited.hit_rates == ()  # not traced
    assert from_json(to_json(audited), Transfer) == audited


def test_declared_weights_override_names(tmp_path: Path) -> None:
    wanted = target(args=(Arg(name="a", dtype="float32", shape=("m", "n")),
                          Arg(name="b", dtype="float32", shape=("n",)),
                          Arg(name="c", dtype="float32", shape=("m", "n"), role="output")))
    source = triton(entry=WEIGHTS)
    assert audit(tmp_path / "1", source, wanted).decision == "REJECT-as-overfit"
    assert audit(tmp_path / "2", source, wanted, weights={"b"}).bucket == "W1"
    assert audit(tmp_path / "3", source, weights=()).decision == "REJECT-as-overfit"


def test_cache_in_baseline_is_not_counted(tmp_path: Path) -> None:
    base = triton("if id(x) in _c: return", "_c = {}")
    audited = transfer(audited_change(target(), *trees(
        tmp_path, {"kernel.py": base + "\nTILE = 4\n"}, {"kernel.py": base})))
    assert (audited.bucket, audited.finding()) == ("K1", None)


def steps(weight: int, other: int, count: int = 8) -> list[TraceStep]:
    return [
        TraceStep(step=n, weight_hits=0 if n == 0 else weight, other_hits=0 if n == 0 else other)
        for n in range(count)
    ]


@pytest.mark.parametrize(("source", "trace", "bucket", "decision"), [
    (triton(entry=WEIGHTS), steps(1, 0), "W1", "ACCEPT-with-asterisk"),
    (triton(entry=WEIGHTS), steps(0, 0), "W1", "REJECT-as-overfit"),
    (triton(entry=WEIGHTS), steps(1, 2), "W3", "REJECT-as-overfit"),
    (TRITON + "\n", steps(0, 1), "W3", "REJECT-as-overfit"),
    (TRITON + "\n", steps(1, 0), "W1", "ACCEPT-with-asterisk"),
    (TRITON + "\n", steps(0, 0), "K1", "ACCEPT-as-real"),
], ids=["weights hit", "weights never hit", "others hit", "hidden memo", "hidden weights", "none"])
def test_trace_overrides_static_audit(tmp_path: Path, source: str, trace: list[TraceStep],
                                      bucket: str, decision: str) -> None:
    audited = audit(tmp_path, source, trace=trace)
    assert (audited.bucket, audited.decision) == (bucket, decision), audited
    assert audited.hit_rates == (None if bucket == "K1" else tuple(trace))


SKEWED = {
    "constant per group": (GROUPED, True),
    "assert": (triton("assert group_sizes % 16 == 0", "group_sizes = 4"), True),
    "even share": (triton("per = rows // num_experts", "num_experts = 8"), True),
    "refused": (triton("if group_sizes[0] % 8 != 0:\n    raise ValueError('bad')",
                       "group_sizes = [8]"), True),
    "swizzle": (TRITON.replace("cols, BLOCK:", "cols, GROUP_M: tl.constexpr, GROUP_SIZE_M: "
                               "tl.constexpr, BLOCK:"), False),
    "ragged": (triton("blocks = triton.cdiv(rows, 16)\nassert cols % 8 == 0"), False),
}


@pytest.mark.parametrize("name", SKEWED)
def test_assumed_group_sizes_are_reported(tmp_path: Path, name: str) -> None:
    source, assumed = SKEWED[name]
    audited = audit(tmp_path / "grouped", source, replace(target(), op="moe_gemm"))
    assert bool(audited.skew) is assumed, audited
    assert (audited.finding() is not None) is assumed
    assert audit(tmp_path / "dense", source).skew == ()


@pytest.mark.parametrize(("name", "weight"), [
    ("w", True), ("weight", True), ("gamma", True), ("beta", True), ("bias", True), ("w1", True),
    ("scale_w", True), ("w_scale", True), ("wq", True), ("qweight", True), ("x", False),
    ("a", False), ("window", False), ("grad_out", False), ("row", False), ("scale_a", False),
    ("topk_ids", False)])
def test_weights_are_recognised_by_name(name: str, weight: bool) -> None:
    assert looks_like_weight(name) is weight


FORGES = '#include <stdio.h>\nvoid f(void) { fopen("bench.csv", "w"); }\n'
MEMO = "static const float *last;\nvoid f(const float *{0}) {{ if ({0} != last) last = {0}; }}"


@pytest.mark.parametrize(("files", "bucket", "flagged"), [
    ({"kernel.c": c("int tile = 4;")}, "K1", False),
    ({"kernel.py": TRITON + "\nTILE = 4\n"}, "K1", False),
    ({"kernel.c": c("int tile = 4;"), "more/tile.h": "#define TILE 4\n"}, "K1", False),
    ({"kernel.c": c(head=MEMO.format("weight"))}, "W1", True),
    ({"kernel.c": c(head=MEMO.format("x"))}, None, True),
    ({"kernel.py": triton("if id(x) in _c: return", "_c = {}")}, None, True),
    ({"kernel.c": c("int tile = 4;"), "table.bin": b"\0\1"}, None, False),
    ({"kernel.py": "def norm(:"}, None, True),
    ({"kernel.c": c(head=FORGES)}, "K1", True),
    ({"kernel.c": c(head=FORGES), "table.bin": b"\0\1"}, None, True),
    ({}, None, False),
], ids=["C", "Triton", "two files", "weights", "who knows what", "the same in Python", "no source",
        "unreadable", "forger", "forger and no source", "nothing"])
def test_project_without_declared_arguments_is_audited(tmp_path: Path,
                                                       files: dict[str, str | bytes],
                                                       bucket: str | None, flagged: bool) -> None:
    found, carried = transfer_of_project("norm", *trees(tmp_path, files))
    assert (carried.bucket if carried else None) == bucket, (carried, found)
    assert [one.severity for one in found] == ["flag"] * flagged

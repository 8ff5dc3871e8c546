"""Manifests: what is read, what is refused with which line, and how they are written again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.manifest.benchmark_target import check_runnable
from engine.manifest.load import dump, load, load_new, parse
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.manifest.rules import NO_KEYS, ignored_fields
from engine.manifest.schema import BudgetSpec, DecisionSpec, GpuSpec, Manifest, StopSpec, TargetSpec
from harness.errors import InputError

FULL = """\
target_op: gemm_fp8_blockwise
target_backend: TRITON
target_lang: TRITON
target_gpu: gfx942
execution_mode: repo
project_skill: primus-turbo-develop
performance_target: null
primary_metric: "Forward TFLOPS, Backward TFLOPS"
target_shapes: all
kernel_source: primus_turbo/triton/gemm/gemm_fp8_kernel.py
test_command: "pytest tests/pytorch/ops/test_gemm_fp8.py -v -k 'blockwise and TRITON'"
benchmark_command: "python benchmark/ops/bench_gemm_turbo.py --dtype fp8"
quick_command: "python quick_test_bench.py"
representative_shapes:
  - {m: 4096, n: 4096, k: 7168}
  - [8192, 2048]
  - tall
git_commit: true
git_branch: none
max_iterations: 119
created: 2026-04-12 10:30
build_command:
env: {PRIMUS_TURBO_GEMM_BACKEND: TRITON}
pool:
  backends: [search, cli]
  cli:
    - {name: coder, command: "agent --task {prompt} --cd {worktree}", env: [AGENT_KEY]}
decision: {margin: 5e-3}
"""


def test_full_manifest_is_read() -> None:
    manifest = parse(FULL, "manifest.yaml")
    assert manifest.representative_shapes == ({"m": 4096, "n": 4096, "k": 7168}, (8192, 2048),
                                              "tall")
    assert (manifest.created, manifest.git_branch) == ("2026-04-12 10:30", "none")
    assert manifest.decision.margin == 0.005
    assert manifest.pool.cli == (
        CliSpec(name="coder", command="agent --task {prompt} --cd {worktree}", env=("AGENT_KEY",)),
    )
    assert parse(dump(manifest), "again") == manifest
    assert parse(dump(manifest, brief=True), "again") == manifest


def test_only_the_operator_is_required() -> None:
    manifest = parse("target_op: rmsnorm\n", "m")
    assert manifest.approval == "flagged"
    assert manifest.stop.consecutive_regressions == 5
    assert dump(manifest, brief=True) == "target_op: rmsnorm\n"


OP = "target_op: x\n"


BAD = [
    (OP + "aproval: auto", "m:2: unknown key 'aproval' (did you mean 'approval'?)"),
    (OP + "zzz: 1", "m:2: unknown key 'zzz'"),
    (OP + "timeout_s: 9", "m:2: unknown key 'timeout_s' (it belongs in target)"),
    (OP + "target: {build_command: make}",
     "m:2: unknown key 'target.build_command' (it belongs at the top level)"),
    (OP + "pool:\n  mode: fixed\n  slot: 3",
     "m:4: unknown key 'pool.slot' (did you mean 'slots'?)"),
    (OP + "gpu: {card: 1}", "m:2: unknown key 'gpu.card' (did you mean 'cards'?)"),
    (OP + "pool:\n  slots: many",
     "m:3: pool.slots: expected a whole number or nothing, got the text 'many'"),
    (OP + "pool:\n  slots: 0",
     "m:3: pool.slots: expected a whole number of at least 1, got the number 0"),
    (OP + "git_commit: yes", "m:2: git_commit: expected true or false, got the text 'yes'"),
    (OP + "pool: 3", "m:2: pool: expected a mapping, got the number 3"),
    (OP + "edit: a.c", "m:2: edit: expected a list, got the text 'a.c'"),
    (OP + "edit:\n  - a.c\n  - 7", "m:4: edit[1]: expected text, got the number 7"),
    (OP + "env: {A: 1}", "m:2: env: every value must be text (put it in quotes)"),
    (OP + "env: {1A: x}", "m:2: env: '1A' is not a variable name"),
    (OP + "target: {kind: schedule}",
     "m:2: target.kind: 'schedule' is not one of kernel, command"),
    (OP + "target:\n  metrics: [{nam: us}]",
     "m:3: the key 'target.metrics[0].name' is missing"),
    (OP + "target:\n  metrics:\n  - {name: us, wieght: 2}",
     "m:4: unknown key 'target.metrics[0].wieght' (did you mean 'weight'?)"),
    (OP + "e2e_metric: {name: us, units: us}",
     "m:2: unknown key 'e2e_metric.units' (did you mean 'unit'?)"),
    (OP + "approval: Auto", "m:2: approval: 'Auto' is not one of auto, review, flagged "
                            "(did you mean 'auto'?)"),
    ("pool: {}", "m:1: the key 'target_op' is missing"),
    ("target_op: ''", "m:1: target_op: expected text that is not empty, got the text ''"),
    ("target_op: ../x", "m:1: target_op: '../x' cannot be part of a folder's name (use "
                        "letters, digits, '.', '_' and '-', at most 64)"),
    (OP + "max_iterations: 120",
     "m:2: max_iterations: expected a whole number of at most 119, got the number 120"),
    (OP + "decision: {margin: -0.01}",
     "m:2: decision.margin: expected a number of at least 0.0, got the number -0.01"),
    (OP + "decision: {tolerance: 1}",
     "m:2: decision.tolerance: expected a number of at most 0.05, got the number 1"),
    (OP + "gpu: {retry_s: 0}",
     "m:2: gpu.retry_s: expected a number above 0.0, got the number 0"),
    (OP + "gpu: {retry_s: 99, limit_s: 9}", "m:2: gpu.retry_s is longer than gpu.limit_s"),
    (OP + "pool: {backends: [search, serch]}",
     "m:2: pool.backends: unknown backend 'serch' (did you mean 'search'?)"),
    (OP + "pool: {backends: [cli]}", "m:2: pool.backends has 'cli' but pool.cli names no "
                                     "command (add a pool.cli entry with name and command)"),
    (OP + "pool:\n  backends: [cli]\n  cli:\n  - name: a\n    command: run {promt}",
     "m:6: pool.cli[0].command: unknown placeholder {promt} (did you mean 'prompt'?)"),
    (OP + "pool:\n  backends: [cli]\n  cli:\n  - name: a\n    command: run it",
     "m:6: pool.cli[0].command: the command does not use the task "
     "(use {prompt}, the path of the task's file)"),
    (OP + "pool:\n  backends: [cli]\n  cli:\n  - name: a\n"
     "    command: run --key sk-ant-0123456789abcdef {prompt}",
     f"m:6: pool.cli[0].command contains a provider's key ({NO_KEYS})"),
    (OP + "pool:\n  backends: [agent]\n  agent:\n    model: m\n"
     "    api_base: https://user:secret@host/v1",
     f"m:6: pool.agent.api_base contains a password or key ({NO_KEYS})"),
    (OP + "pool:\n  backends: [agent]\n  agent:\n    model: m\n"
     "    api_base: https://host/v1?api-key=secret",
     f"m:6: pool.agent.api_base contains a password or key ({NO_KEYS})"),
    (OP + "pool:\n  backends: [cli]\n  cli:\n  - name: a\n    command: run `cat {prompt}`",
     "m:6: pool.cli[0].command: {prompt} stands in backticks, where it cannot be quoted: "
     "assign it to a variable first"),
    (OP + "edit: [/etc/passwd]", "m:2: edit: the glob '/etc/passwd' is not relative "
                                 "(globs are relative to the project, like src/*.c)"),
    (OP + "frozen: ['a/../../b']", "m:2: frozen: the glob 'a/../../b' leaves the project "
                                   "(globs are relative to the project, like src/*.c)"),
    (OP + "edit: ['[ab.c']", "m:2: edit: the glob '[ab.c' has a '[' without its ']' "
                             "(globs are relative to the project, like src/*.c)"),
    (OP + "edit: [a.c]\nfrozen: [a.c]",
     "m:2: edit: 'a.c' is also in frozen (remove it from one of the two)"),
    (OP + "target: {task: ../../task.yaml}",
     "m:2: target.task: '../../task.yaml' leaves the project (it is a path inside the "
     "project)"),
    (OP + "git_branch: 'a..b'", "m:2: git_branch: 'a..b' is not a branch name (auto, none, or a "
                                "name as git allows it)"),
    (OP + "git_branch: --force", "m:2: git_branch: '--force' is not a branch name (auto, none, "
                                 "or a name as git allows it)"),
    (OP + "created: 2026-13-01 10:00",
     "m:2: created: '2026-13-01 10:00' is not a time (write YYYY-MM-DD HH:MM)"),
    (OP + "test_command: pytest 'a",
     "m:2: test_command: the command is not well quoted: no closing quotation"),
    (OP + "target: {kind: command}",
     "m:2: a command target needs the key 'benchmark_command'"),
    (OP + "target_shapes: some",
     "m:2: target_shapes: expected all or a list of shapes, got 'some'"),
    (OP + "performance_target: >500 TFLOPS",
     "m:2: not YAML: expected chomping or indentation indicators, but found '0' "
     "(put the text in quotes)"),
    (OP + "\tx: 1", "m:2: not YAML: found character '\\t' that cannot start any token "
                    "(indent with spaces, not tabs)"),
    (OP + "target_op: y", "m:2: key 'target_op' is already given in line 1"),
    ("a: &a [x]\nb: [*a, *a]", "m:2: the alias *a is not allowed: write the value out"),
    ("a: !!python/name:os.system x",
     "m:1: the tag tag:yaml.org,2002:python/name:os.system is not allowed"),
    (OP + "---\nb: 1", "m:2: a second document starts here, only one is allowed"),
    ("a: " + "[" * 5000, "m:1: nested deeper than 20 levels"),
    ("a: 1e999", "m:1: the number is too large"),
    ("a: " + "9" * 5000, "m:1: the number is too large"),
    ("? [x]\n: 1", "m:1: a key must be plain text"),
    ("- a", "m:1: expected a mapping (`key: value` lines), got a list"),
    ("just words", "m:1: expected a mapping (`key: value` lines), got the text 'just words'"),
    ("", "m: is empty"),
    ("# nothing\n", "m: is empty"),
    ("a: \x1b[31m", "m:1: is not plain text (character U+001B)"),
    ("a: 1\n" * 40_000, "m: is larger than 128 KiB"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[bad[1][:48] for bad in BAD])
def test_error_about_a_bad_manifest_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "m")
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "fix"), [("tritonn", "triton"), ("TRITON", ""), ("CK_tile", "")])
def test_new_campaign_needs_a_known_kernel_type(tmp_path: Path, name: str, fix: str) -> None:
    (path := tmp_path / "m.yaml").write_text(f"target_op: x\ntarget_backend: {name}\n")
    assert load(path).target_backend == name  # a campaign of an older kopt stays readable
    if not fix:
        assert load_new(path).target_backend == name
        return
    with pytest.raises(InputError) as refused:
        load_new(path)
    text = str(refused.value)
    assert text.startswith(f"{path}:2: target_backend: unknown kernel type 'tritonn'; known: ")
    assert f"did you mean '{fix}'?" in text and "flydsl" in text and "\n" not in text


def test_unreadable_manifest_files_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\x7fELF\x02\xff\xfe")
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(10**10)
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    source = tmp_path / "softmax.cu"
    source.write_text("__global__ void softmax() {}\n")
    expected = {
        source: "is a kernel's source, not YAML (kopt new softmax.cu writes a manifest for it)",
        binary: "is not UTF-8 text (byte 0xff at offset 5)",
        huge: "is larger than 128 KiB",
        fifo: "does not exist or is not a plain file, a YAML file was expected",
        tmp_path: "is a folder, a YAML file was expected",
        tmp_path / "none.yaml": "there is no such manifest (kopt new FILE:FUNCTION or kopt "
                                "new --project DIR writes one)",
    }
    for path, message in expected.items():
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: {message}"


def test_loaded_manifest_has_an_absolute_project(tmp_path: Path) -> None:
    file = tmp_path / "campaign" / "manifest.yaml"
    file.parent.mkdir()
    file.write_text("\ufefftarget_op: x\nproject: ../kernels\n", encoding="utf-8")
    assert load(file).project == str(tmp_path / "kernels")


def test_kernel_and_benchmark_targets_can_run() -> None:
    command = parse(OP + "benchmark_command: bench --csv out.csv\nedit: [kernel.py]\n"
                    "target: {kind: command, csv: out.csv, check: ok, metrics: [tflops]}", "m")
    assert command.target.metrics == ("tflops",)
    check_runnable(command)
    check_runnable(parse(OP, "m"))


def test_schema_has_every_field_and_the_limit_of_rounds() -> None:
    definitions = msgspec.json.schema(Manifest)["$defs"]
    assert set(definitions["Manifest"]["properties"]) == set(Manifest.__struct_fields__)
    assert definitions["Manifest"]["required"] == ["target_op"]
    assert {"minimum": 1, "exclusiveMaximum": 120, "type": "integer"} in \
        definitions["Manifest"]["properties"]["max_iterations"]["anyOf"]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
slugs = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
counts = st.none() | st.integers(1, 60)
shapes = st.lists(words | st.tuples(st.integers(0, 9)) |
                  st.dictionaries(words, st.integers(-9, 2**62), max_size=3),
                  min_size=1, max_size=4).map(tuple)
commands = st.sampled_from(["", "make", "pytest -k 'a and b'", "1e6", "null", "yes", "#x",
                            "a: b", "- c", "10:30", "echo \"ä\u2028\x85\" | cat"])
parts = {
    "target": st.builds(TargetSpec, metrics=st.lists(words.filter(bool), max_size=3).map(tuple)),
    "pool": st.builds(PoolSpec, mode=st.sampled_from(["mixed", "fixed", "planned"]), slots=counts,
                      workers=counts),
    "gpu": st.builds(GpuSpec, device=words.filter(bool), retry_s=st.floats(1e-9, 3000)),
    "decision": st.builds(DecisionSpec, margin=st.floats(0, 0.5), tolerance=st.floats(0, 0.05)),
    "budget": st.builds(BudgetSpec, wall_s=st.none() | st.floats(1e-9, 1e5), trials=counts),
    "stop": st.builds(StopSpec, consecutive_regressions=st.integers(1, 99), no_gain_rounds=counts),
}


@settings(max_examples=60, deadline=None)
@given(st.builds(
    Manifest, target_op=slugs, target_gpu=slugs, performance_target=st.none() | words,
    primary_metric=words.filter(bool), python=st.none() | words, test_command=commands,
    setup_command=commands, target_shapes=st.just("all") | shapes,
    representative_shapes=st.none() | shapes, max_iterations=st.none() | st.integers(1, 119),
    git_commit=st.booleans(), env=st.dictionaries(st.from_regex(r"[A-Z_]{1,9}", fullmatch=True),
                                                  words, max_size=3), **parts))
def test_manifest_round_trips_through_text(manifest: Manifest) -> None:
    assert parse(dump(manifest), "dumped") == manifest
    assert parse(dump(manifest, brief=True), "dumped") == manifest
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest


@pytest.mark.parametrize(("text", "ignored"), [
    ("", ()),
    ("test_command: pytest\nsetup_command: make\n", ("setup_command",)),
    ("git_branch: mine\ngit_commit: false\n", ("git_branch",)),
    ("git_branch: optimize/x\nformat_command: black .\n", ()),
])
def test_ignored_fields_of_a_kernel_are_listed(text: str, ignored: tuple[str, ...]) -> None:
    assert ignored_fields(parse(f"target_op: x\n{text}", "manifest.yaml")) == ignored

"""The corpus returns the records written to it, and no content of it can break a loop."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.devices import inventory
from harness.search.space.knobs import Knob
from harness.search.space.tunable_source import Observation, Space
from harness.search.trials import corpus
from harness.search.trials.corpus import Record
from tests.support.kernels.c_case import target
from tests.support.searches.trial_case import trial

KNOBS = (Knob(name="A", line=1, value=2, choices=(1, 2, 4)),
         Knob(name="B", line=2, value=0.5, choices=(0.5, 0.25)),
         Knob(name="C", line=3, value="off", choices=("off", "on"), reserved=True))


def record(gain: float | None = 2.0, **fields: Any) -> Record:
    made = trial(gain, {"A": 4}, candidate_id="c", kernel_id="k1", at="2026-11-20T10:00:00Z")
    return replace(corpus.record_of(made, target(), inventory.find("cpu"), KNOBS), **fields)


TEXTS = st.text(max_size=30)
VALUES = st.integers(-10**9, 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
CONFIGS = st.dictionaries(TEXTS, VALUES, max_size=4)


@settings(max_examples=40)  # each example writes and reads a file
@given(st.lists(st.tuples(CONFIGS, TEXTS, st.none() | st.floats(1e-3, 1e6)), max_size=5))
def test_written_records_are_read_back(tmp_path_factory: pytest.TempPathFactory,
                                       drawn: list[tuple[Any, str, float | None]]) -> None:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    records = tuple(
        record(config=config, reason=reason, latency_us=us, op=reason,
               latency_kind=None if us is None else "measured-gpu") for config, reason, us in drawn)
    for one in records:
        corpus.append(path, one)
    reading = corpus.read(path)
    assert (reading.records, reading.skipped) == (records, 0)
    for one in records:
        assert one in corpus.read(path, op=one.op).records


def test_record_contains_knobs_classes_device_and_latency(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    corpus.append(path, record(kept=True))
    recorded = json.loads(path.read_text())
    assert recorded["config"] == {"A": 4, "B": 0.5, "C": "off"}
    assert recorded["knobs"] == {"A": [1, 2, 4], "B": [0.5, 0.25], "C": ["off", "on"]}
    assert recorded["classes"][0] == {"name": "even", "shape": {"n": 8192},
                                      "dtypes": ["float32", "float32", "int64"]}
    assert recorded["device"] == inventory.find("cpu").name and recorded["arch"]
    assert (recorded["latency_us"], recorded["latency_kind"], recorded["kept"]) == (
        5.0,
        "measured-cpu",
        True,
    )
    assert recorded["at"].endswith("Z") and recorded["harness_version"] and recorded["schema"] == 1


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(
    [b"{}", b"[]", b"null", b'{"op":"twice"', b'{"op": 1}', b"\xff", b"[" * 5000, b"9" * 5000]),
    max_size=8), st.integers(0, 300))
def test_corpus_of_any_content_can_be_read(tmp_path_factory: pytest.TempPathFactory,
                                           garbage: list[bytes], torn: int) -> None:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    corpus.append(path, record())
    whole = path.read_bytes()
    path.write_bytes(b"\n".join([*garbage, whole[:torn]]))
    corpus.append(path, record(op="after"))
    reading = corpus.read(path)
    assert reading.records[-1] == record(op="after")
    assert reading.skipped >= sum(b"}" not in line for text in garbage
                                  for line in text.split(b"\n") if line)


def test_missing_corpus_is_empty_and_reading_stops_at_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    assert corpus.read(path) == corpus.CorpusReading(()) and corpus.size(path) == 0
    corpus.append(path, record())
    end = corpus.size(path)
    corpus.append(path, record(op="later"))
    assert corpus.read(path, end=end).records == (record(),)
    assert corpus.read(path, end=0).records == ()
    with pytest.raises(OSError):
        corpus.read(tmp_path)


def test_only_records_of_the_same_kernel_match_if_there_are_any() -> None:
    same, akin = record(), record(kernel="k2")
    others = (record(op="other"), record(language="triton"), record(config={"A": 4}))
    wanted: dict[str, Any] = {"op": "twice", "language": "c", "names": ["B", "A", "C"]}
    assert corpus.matching((akin, same, *others), kernel="k1", **wanted) == (same,)
    assert corpus.matching((akin, same, *others), kernel="k9", **wanted) == (akin, same)


def test_only_records_of_configurations_in_the_space_become_observations() -> None:
    space = Space(choices={"A": (1, 2, 4)}, default={"A": 2})
    records = (record(), record(None), record(device="H200"), record(config={"A": 3}),
               record(config={"B": 0.5}), record(config={"A": 4, "B": 0.25, "C": "off"}))
    seen = corpus.history(records, space, {"B": 0.5, "C": "off"})
    assert [record.latency_us for record in seen] == [5.0, None, 5.0]
    assert seen[0] == Observation(source=record().source, config={"A": 4}, latency_us=5.0)
    assert seen[0].source == seen[1].source != seen[2].source


def test_hundred_thousand_lines_are_read_quickly(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    corpus.append(path, record())
    path.write_bytes(path.read_bytes() * 100_000)
    began = time.process_time()
    for _ in range(50):
        corpus.append(path, record(op="rare"))
    assert time.process_time() - began < 0.5
    began = time.process_time()
    assert len(corpus.read(path, op="rare").records) == 50
    assert time.process_time() - began < 2
    assert len(corpus.read(path, op="twice").records) == corpus.LATEST

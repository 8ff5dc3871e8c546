"""`kopt evaluate --json` answers bad input quickly, with one JSON document and the right code.

Hundreds of mutations of a manifest, a task, a configuration and a request run through the
command's own entry in this process, up to where a harness process would be started; some run
through the real command, to the end. Every run of the tests draws the same mutations.
"""

from __future__ import annotations

import gc
import io
import json
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

import harness.__main__ as answering
from engine.verify import harness_client
from harness.formats.json_codec import to_json
from harness.requests import EvaluateRequest
from harness.verdict import Verdict
from tests.support import mutations
from tests.support.programs.evaluate_entry import MANIFEST, PATCH, TASK, Entry

CONFIG = {"PASSES": 1, "FORWARD": 2, "OTHER": 0.5}
COUNTS = {"manifest": 80, "task": 70, "config": 40, "patch": 20, "request": 40}


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entry]:
    with pytest.MonkeyPatch.context() as patch:
        made = Entry(tmp_path_factory.mktemp("fuzz"), patch)
        assert made.run(str(made.manifest))[0] == 0
        assert made.run(str(made.manifest), "--config", json.dumps(CONFIG))[0] == 0
        assert made.asked == 2
        yield made
        gc.collect()
        assert not list((made.folder / "tmp").iterdir()), "something was left behind"


Codes = dict[int, int]


def cases(kind: str, run: Callable[[random.Random], int]) -> Codes:
    """Run all mutations of one kind; return the count of each exit code."""
    codes: Codes = {}
    for number in range(COUNTS[kind]):
        try:
            code = run(random.Random(f"{kind} {number}"))
        except BaseException as error:
            error.add_note(f"{kind}, mutation {number}")
            raise
        codes[code] = codes.get(code, 0) + 1
    return codes


def mutated(rng: random.Random, document: Any,
            write: Callable[[Any], bytes] = mutations.as_yaml) -> bytes:
    if rng.random() < 0.6:
        return write(mutations.structured(rng, document))
    return mutations.text(rng, write(document))


def test_bad_manifest_is_a_json_error_and_exit_2(entry: Entry) -> None:
    path = entry.manifest.with_name("mutated.yaml")

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, MANIFEST))
        code, answer = entry.run(str(path))
        if code == 1:
            assert answer["error"]["where"] == "target.kind"  # valid, but kopt cannot run this kind
        if code == 3:
            assert "device" in path.read_text()  # one that this machine does not have
        return code

    codes = cases("manifest", exit_code_of_case)
    assert codes[2] > 40 and codes[0] > 7 and set(codes) <= {0, 1, 2, 3}, codes


def test_bad_task_is_a_json_error_and_exit_2(entry: Entry) -> None:
    def exit_code_of_case(rng: random.Random) -> int:
        entry.task = mutated(rng, TASK)
        return entry.run(str(entry.manifest))[0]

    try:
        codes = cases("task", exit_code_of_case)
    finally:
        entry.task = None
    assert codes[2] > 30 and codes[0] > 3 and set(codes) == {0, 2}, codes


def test_bad_configuration_is_a_verdict_or_exit_2(entry: Entry) -> None:
    def exit_code_of_case(rng: random.Random) -> int:
        config = mutated(rng, CONFIG, mutations.as_json).decode(errors="surrogateescape")
        code, answer = entry.run(str(entry.manifest), f"--config={config}")
        if code == 2:
            assert answer["error"]["what"].startswith("--config: ")
        return code

    codes = cases("config", exit_code_of_case)
    assert set(codes) == {0, 1, 2} and min(codes.values()) > 2, codes


def test_bad_patch_is_a_verdict_and_exit_1(entry: Entry) -> None:
    path = entry.folder / "mutated.patch"

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutations.text(rng, PATCH.encode()))
        return entry.run(str(entry.manifest), "--patch", str(path))[0]

    codes = cases("patch", exit_code_of_case)
    assert set(codes) == {0, 1} and codes[1] > 5, codes


def test_bad_request_is_an_error_line_and_exit_2(
        entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[EvaluateRequest] = []
    monkeypatch.setattr(harness_client, "evaluate",
                        lambda request, **_: requests.append(request) or Verdict(
                            valid=True, correct=True))
    entry.run(str(entry.manifest))
    valid = json.loads(to_json(requests[0]))
    monkeypatch.setattr(
        answering,
        "evaluate",
        lambda target, *_, **__: (
            [target.tensors(each) for each in target.classes]
            and Verdict(valid=True, correct=True)
        ),
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = entry.folder / "request.json"
    monkeypatch.setattr(sys, "argv", ["harness", str(path)])

    def exit_code_of_case(rng: random.Random) -> int:
        path.write_bytes(mutated(rng, valid, mutations.as_json))
        raw = io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(raw, write_through=True)) as out:
            code = answering.main()
            out.flush()
        lines = [json.loads(line) for line in raw.getvalue().splitlines()]
        assert [line["type"] for line in lines] == ["error" if code else "verdict"]
        assert not code or lines[0]["exit_code"] == code
        return code

    codes = cases("request", exit_code_of_case)
    assert set(codes) <= {0, 2, 3} and codes[2] > 10, codes

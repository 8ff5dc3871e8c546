"""results.tsv has one row per trial, for any content and with concurrent writers."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search.trials import trials_tsv
from harness.search.trials.trials import Trial
from tests.support.paths import ROOT
from tests.support.searches.trial_case import trial

SEED_001 = ["experiment", "tag", "loop", "model", "gpu", "regime", "correctness", "latency_us",
            "pct_of_roofline", "schedule_id", "kernel_id", "description"]
NASTY = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["a\tb", "a\nb", "a\r\nb", "\x1b[31mred\x1b[0m", "\u2028", "\x00", "x" * 1000, "\udcff"])


def read(path: Path) -> list[list[str]]:
    lines = path.read_text().split("\n")
    assert lines[-1] == "" and lines[0].split("\t") == SEED_001
    return [line.split("\t") for line in lines[1:-1]]


def test_columns_have_the_documented_order(tmp_path: Path) -> None:
    path = tmp_path / "below" / "results.tsv"
    made: Trial = trial(2.0, {"A": 4}, number=3, tag="kept", candidate_id="c1", kernel_id="k1",
                        pct_of_roofline=12.5)
    trials_tsv.append(path, [trials_tsv.row(made, model="scale", gpu="H200")])
    trials_tsv.append(path, [trials_tsv.row(trial(None, number=4), model="scale", gpu="H200",
                                            experiment="2.fixed.4")])
    assert read(path) == [
        ["3", "kept", "knobs", "scale", "H200", "screening", "PASS", "5.0000", "12.50", "c1", "k1",
         '{"A": 4, "B": 0.5, "C": "off"}; measured-cpu'],
        ["2.fixed.4", "revert", "knobs", "scale", "H200", "screening", "FAIL", "", "", "", "",
         '{"A": 2, "B": 0.5, "C": "off"}; wrong']]
    assert trials_tsv.experiments(path) == {"3", "2.fixed.4"}


@given(st.lists(st.tuples(NASTY, NASTY), max_size=6))
def test_any_text_stays_within_its_row(tmp_path_factory: pytest.TempPathFactory,
                                       texts: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("tsv") / "results.tsv"
    for number, (reason, gpu) in enumerate(texts):
        one = trial(None, number=number, reason=reason)
        trials_tsv.append(path, [trials_tsv.row(one, model=reason, gpu=gpu)])
    rows = read(path) if texts else []
    assert [row[0] for row in rows] == [str(number) for number in range(len(texts))]
    for row in rows:
        assert len(row) == 12
        assert not any(unicodedata.category(c) == "Cc" for cell in row for c in cell)


def test_torn_row_damages_no_other(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    trials_tsv.append(path, [trials_tsv.row(trial(1, number=0), model="m", gpu="g")])
    with path.open("a") as file:
        file.write("1\tkept\tkno")  # as by a writer that was killed
    trials_tsv.append(path, [trials_tsv.row(trial(1, number=2), model="m", gpu="g")])
    assert [len(row) for row in read(path)] == [12, 3, 12]
    assert trials_tsv.experiments(path) == {"0", "2"}


WRITE = """
import sys
from pathlib import Path
from harness.formats import jsonl
for n in range(200):
    jsonl.append(Path(sys.argv[1]), f"{sys.argv[2]} {n} {'x' * 300}\\n".encode(), head=b"head\\n")
"""


def test_concurrent_writers_keep_rows_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(n)], cwd=ROOT)
               for n in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    head, *rows = path.read_text().splitlines()
    assert head == "head" and all(len(row.split()[2]) == 300 for row in rows)
    for n in range(4):
        assert [row.split()[1] for row in rows if row.startswith(f"{n} ")] == [
            str(i) for i in range(200)]

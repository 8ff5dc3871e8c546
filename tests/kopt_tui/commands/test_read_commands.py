"""Tests the verbs that read the journal: status, show, diff, logs, events, report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.journal import lease
from engine.journal.write import Writer, request
from tests.support.paths import ROOT
from tests.support.programs.command_line import (
    NAME,
    PATCH,
    answer,
    converse,
    error_text,
    harmless,
    kopt,
    write_campaign,
)


def test_status_says_what_the_engine_of_a_waiting_campaign_does(tmp_path: Path) -> None:
    write_campaign(tmp_path, state="waiting", phase="VALIDATE", reason="4 rounds done")
    writer = Writer(tmp_path)
    own = lease.acquire(writer, NAME)
    status = kopt("status", workspace=tmp_path).stdout
    assert "\n  after its end: VALIDATE; 4 rounds done\n" in status
    lease.release(writer, own)
    writer.close()
    assert "VALIDATE" not in kopt("status", workspace=tmp_path).stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_campaign(tmp_path)
    return tmp_path


def test_status_of_an_empty_workspace_is_not_an_error(tmp_path: Path) -> None:
    done = kopt("status", workspace=tmp_path)
    assert done.returncode == 0 and "no campaign" in done.stdout
    assert answer(kopt("status", "--json", workspace=tmp_path))["campaigns"] == []
    assert kopt("events", workspace=tmp_path).stdout == ""
    done = kopt("report", workspace=tmp_path)
    assert done.returncode == 2 and "there is no campaign yet" in error_text(done)


def test_status_lists_campaigns_with_best_speedup_and_number_of_waiting_candidates(
        workspace: Path) -> None:
    write_campaign(workspace, "matmul_c_cpu_20261120", state="running", speedup=None,
                   speedup_low=None, speedup_high=None, reason="")
    table = kopt("status", workspace=workspace).stdout
    rows = {text.split()[0]: text for text in re.split(r"\n(?! )", table.strip())}
    assert "✓ finished" in rows[NAME] and "2.50x [2.40, 2.60]" in rows[NAME]
    assert "baseline" in rows[NAME] and "max_iterations reached" in rows[NAME]
    assert f"kopt merge {NAME} applies the result" in rows[NAME]
    assert "✗ lost" in rows["matmul_c_cpu_20261120"]
    assert "its engine is gone" in rows["matmul_c_cpu_20261120"]
    assert "✗ lost its engine is gone" in kopt("show", "matmul", workspace=workspace).stdout
    one = answer(kopt("status", "rms", "--json", workspace=workspace))["campaigns"][0]
    assert one["waiting"] == 1 and one["live"] is False and one["campaign"]["speedup"] == 2.5


def test_status_lists_requests_that_no_engine_has_answered(workspace: Path) -> None:
    request(workspace, NAME, "approve", by="ann@box", candidate="dd44" * 10)
    request(workspace, NAME, "resume", by="ann@box")
    assert f"\n  » not answered yet: approve dd44dd44, resume;\n    kopt resume {NAME} starts" in \
        kopt("status", workspace=workspace).stdout


def test_lines_of_status_fit_80_columns_without_omissions(tmp_path: Path) -> None:
    reason = "no_gain_rounds: two rounds without a gain; " * 5 + "the end"
    write_campaign(tmp_path, reason=reason, device="Intel(R) Xeon(R) Platinum 8480C Processor")
    lines = kopt("status", workspace=tmp_path).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert reason in " ".join(map(str.strip, lines)) and "Platinum" in lines[-1]


def test_status_names_a_live_engine(workspace: Path) -> None:
    writer = Writer(workspace)
    held = lease.acquire(writer, NAME)
    one = answer(kopt("status", "--json", workspace=workspace))["campaigns"][0]
    assert one["live"] is True and one["engine"].endswith(f" {os.getpid()}")
    lease.release(writer, held)
    writer.close()


def test_show_of_a_campaign_prints_no_escape_sequences(workspace: Path) -> None:
    shown = kopt("show", workspace=workspace).stdout
    assert harmless(shown)
    for expected in ("rmsnorm in c", "2.50x", "one kept", "bb33bb33bb33", "crash: signal 11",
                     "memory", "vectorise", "unroll red | <b>bold</b>"):
        assert expected in shown, expected
    value = answer(kopt("show", "rmsnorm", "--json", workspace=workspace))
    assert len(value["candidates"]) == 4 and value["rounds"][0]["outcome"] == "keep"


def test_show_of_a_candidate_prints_its_verdict_by_class(workspace: Path) -> None:
    shown = kopt("show", "aa11", workspace=workspace).stdout
    assert harmless(shown)
    assert "✓ correct, 2.50x [2.40, 2.60] against the incumbent, 10.0 us (measured-cpu)" in shown
    assert "tall (core)" in shown and "✓ faster" in shown and "= tie" in shown
    value = answer(kopt("show", "aa11", "--json", workspace=workspace))
    assert value["verdicts"][0]["verdict"]["rows"][0]["config_class"] == "tall"
    assert [decision["kind"] for decision in value["decisions"]] == ["keep"]


@pytest.mark.parametrize(
    ("words", "part"),
    [(("show", "zz"), "no campaign or candidate 'zz'"), (("show", "bb"), "ambiguous"),
     (("diff", "zz"), "no candidate 'zz'"), (("report", "matmul"), "no campaign 'matmul'"),
     (("report", "rmsnrom_c_cpu_20261120"), "did you mean"),
     (("logs", "rms"), "there is no log yet")],
)
def test_unknown_or_ambiguous_names_are_refused(
        words: tuple[str, ...], part: str, workspace: Path) -> None:
    done = kopt(*words, workspace=workspace)
    assert done.returncode == 2 and part in error_text(done)


def test_diff_is_harmless_unless_raw(workspace: Path) -> None:
    shown = kopt("diff", "aa11", workspace=workspace).stdout
    assert shown.endswith("-a\n+b \n") and harmless(shown)
    assert kopt("diff", "aa11", "--raw", workspace=workspace).stdout == PATCH.decode()
    (workspace / NAME / "patches" / "kept.patch").write_bytes(PATCH + b"+more\n")
    done = kopt("diff", "aa11", workspace=workspace)
    assert done.returncode == 3 and "has changed since it was judged" in error_text(done)
    (workspace / NAME / "patches" / "kept.patch").unlink()
    assert "cannot be read" in error_text(kopt("diff", "aa11", workspace=workspace))


def test_logs_print_the_end_without_escape_sequences(workspace: Path) -> None:
    logs = workspace / NAME / "logs"
    logs.mkdir()
    (logs / "optimize.md").write_text("".join(f"line {n} \x1b[2J\n" for n in range(500)))
    (logs / "host.log").write_text("the host\n")
    shown = kopt("logs", "-n", "3", workspace=workspace).stdout
    assert shown == "line 497 \nline 498 \nline 499 \n"
    assert kopt("logs", "--file", "host.log", workspace=workspace).stdout == "the host\n"
    done = kopt("logs", "--file", "../manifest.yaml", workspace=workspace)
    assert done.returncode == 2 and "there is host.log, optimize.md" in error_text(done)


def test_events_are_printed_as_lines_or_json(workspace: Path) -> None:
    lines = kopt("events", "-n", "0", workspace=workspace).stdout
    assert harmless(lines) and "campaign created" in lines and "decision" in lines
    printed = kopt("events", "-n", "0", "--json", workspace=workspace).stdout
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert all(isinstance(event["payload"], dict) for event in events)
    last = [json.loads(line)["seq"] for line in
            kopt("events", "-n", "2", "--json", workspace=workspace).stdout.splitlines()]
    assert last == [event["seq"] for event in events[-2:]]
    after = kopt("events", "--after", str(last[0]), "--json", workspace=workspace).stdout
    assert json.loads(after)["seq"] == last[1]
    first = kopt("events", "--after", "3", "-n", "1", "--json", workspace=workspace).stdout
    assert json.loads(first)["seq"] == 4
    for number in ("-1", str(2**64)):
        done = kopt("events", "--after", number, workspace=workspace)
        assert done.returncode == 2 and "is not between 0 and" in error_text(done)
    kinds = kopt("events", "--kind", "decision", "-n", "0", "--json", workspace=workspace).stdout
    assert {json.loads(line)["kind"] for line in kinds.splitlines()} == {"decision"}


def test_follow_ends_with_the_engine(workspace: Path) -> None:
    writer = Writer(workspace)
    held = lease.acquire(writer, NAME)
    process = subprocess.Popen([sys.executable, "-m", "kopt_tui.main", "events", NAME, "--follow",
                                "--lines", "1", "--workspace", str(workspace)], cwd=ROOT,
                               text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    process.stdout.readline()
    writer.event(NAME, "log", message="while it is followed")
    assert "while it is followed" in process.stdout.readline()
    lease.release(writer, held)
    writer.close()
    assert process.wait(30) == 0
    watchdog.cancel()


def test_report_states_what_was_kept_and_why(workspace: Path, tmp_path: Path) -> None:
    report = kopt("report", workspace=workspace).stdout
    assert harmless(report)
    assert "**2.50x [2.40, 2.60]** as fast as the baseline" in report
    assert "1 keep, 1 tie, 1 reject, 1 ask" in report
    assert "| tall (core) | faster | 25.000 us | 10.000 us | 2.50x [2.40, 2.60] |" in report
    assert "kopt approve dd44dd44dd44" in report and "crash: signal 11 second line" in report
    assert "finished after the baseline: max_iterations reached." in report
    file = tmp_path / "report.md"
    kopt("report", "--output", str(file), workspace=workspace)
    assert file.read_text() == report


def test_report_at_a_terminal_is_laid_out_within_80_columns(workspace: Path) -> None:
    status, screen = converse(["report", "--workspace", str(workspace)], {})
    lines = screen.splitlines()
    assert status == 0 and max(map(len, lines)) <= 80, screen
    heads = [line.split() for line in lines if line.startswith("class ")]
    assert ["class", "outcome", "before", "after", "gain", "%", "of", "roofline"] in heads
    assert not any(line.startswith("|") for line in lines) and "kopt approve dd44dd44dd44" in screen


def test_worker_texts_are_not_markup_in_the_report(workspace: Path) -> None:
    report = kopt("report", workspace=workspace).stdout
    assert "<b>" not in report.replace("\\<", "") and "](http" not in report.replace("\\]", "")
    assert all(line.count("|") - line.count("\\|") == 8
               for line in report.split("## What was tried")[1].split("\n## ")[0].splitlines()
               if line.startswith("| 1 |"))


def test_report_of_a_campaign_without_gain_states_it(tmp_path: Path) -> None:
    write_campaign(tmp_path, best_commit="b" * 40)
    assert "No gain was kept" in kopt("report", workspace=tmp_path).stdout

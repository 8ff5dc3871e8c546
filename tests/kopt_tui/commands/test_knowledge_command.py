"""`kopt knowledge` lists, shows and searches pages, and prints the excerpt that a worker gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.knowledge import page_library
from kopt_tui.main import main
from tests.support.dashboards import recorded_workspace


def test_list_and_show_print_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knowledge"]) == 0
    printed = capsys.readouterr().out
    assert all(page.name in printed for page in page_library.built_in())
    assert main(["knowledge", "show", "sm_90", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "hardware/sm_90"
    assert main(["knowledge", "show", "sm_90"]) == 0
    assert "wgmma.mma_async" in capsys.readouterr().out


def test_search_without_a_hit_has_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knowledge", "search", "v_mfma_f32_32x32x8_bf16"]) == 0
    assert capsys.readouterr().out.startswith("hardware/gfx942: ")
    assert main(["knowledge", "search", "nosuchword"]) == 1
    assert main(["knowledge", "search", "nosuchword", "--json"]) == 1
    assert capsys.readouterr().out == '{"hits":[]}\n'


def test_excerpt_is_what_a_worker_gets(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--op", "matmul", "--gpu", "gfx942", "--language", "triton"]
    assert main(["knowledge", "excerpt", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["op"] == "GEMM" and "hardware/gfx942" in answer["pages"]
    assert "# gfx942: CDNA 3" in answer["excerpt"]
    assert main(["knowledge", "excerpt", "--language", "cuda-cpp"]) == 0
    assert "# CUDA C++" in capsys.readouterr().out


def test_unknown_page_is_a_one_line_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knowledge", "show", "nosuchpage"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_strategies_are_listed_with_their_records(capsys: pytest.CaptureFixture[str],
                                                  tmp_path: Path) -> None:
    words = ["knowledge", "strategies", "--workspace", str(tmp_path)]
    assert main([*words, "--against", "memory", "--op", "matmul", "--language", "c"]) == 0
    printed = capsys.readouterr().out
    assert "jammed-products" in printed and "c-unroll-and-jam" in printed
    assert "not tried" in printed and "rows-in-flight" not in printed
    assert "matrix-units" not in printed  # C runs on the CPU
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["strategies"]
    assert {row["strategy"]["key"] for row in rows} >= {"memory", "vendor-form"}
    assert rows[0]["record"] == {"tried": 0, "kept": 0, "gain": None}


def test_tips_are_listed_promoted_and_demoted(capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    workspace = ["--workspace", str(recorded_workspace.unpack("schema_3.tar.xz", tmp_path))]
    assert main(["knowledge", "promote", "--json", *workspace]) == 0
    [tip] = json.loads(capsys.readouterr().out)["tips"]
    assert main(["knowledge", "promote", tip["tip"], "--json", *workspace]) == 0
    page = json.loads(capsys.readouterr().out)["page"]
    assert main(["knowledge"]) == 0 and main(["knowledge", "show", page]) == 0
    printed = capsys.readouterr().out
    assert f"\n{page} " in printed and "# Learned: scale in C on AMD EPYC" in printed
    assert main(["knowledge", "demote", page]) == 0
    assert main(["knowledge", "promote", "--workspace", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"removed {page}: ")

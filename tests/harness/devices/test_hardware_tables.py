"""The tables in knowledge/hardware: instruction rates agree with the cards'; all have sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import datasheets
from harness.devices.datasheets import Arch, CardModel
from harness.errors import EnvironmentFault

CARDS = [(arch, card) for arch in datasheets.archs() for card in datasheets.cards()
         if card.arch == arch.name and arch.matrix]


@pytest.mark.parametrize(("arch", "card"), CARDS, ids=[card.name for _, card in CARDS])
def test_matrix_rates_of_an_architecture_are_those_of_its_cards(arch: Arch, card: CardModel,
                                                                ) -> None:
    """Within 15 %: data sheets assume a lower clock for matrix units, and the B200 has variants."""
    for dtype in ("fp64", "tf32", "bf16", "fp16", "fp8", "int8"):
        rates = [row.flops_per_clock for row in arch.matrix if row.dtype == dtype]
        published = getattr(card, dtype)
        if rates and published is not None:
            computed = max(rates) * card.multiprocessors * card.clock_mhz / 1e6
            assert 0.85 < published / computed < 1.07, dtype


@pytest.mark.parametrize(("name", "instruction", "clocks"), [
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", 64), ("gfx90a", "v_mfma_f64_16x16x4f64", 32),
    ("gfx942", "v_mfma_f32_32x32x8_bf16", 32), ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8", 16),
    ("gfx942", "v_mfma_f32_16x16x8_xf32", 16), ("gfx942", "v_mfma_f32_32x32x2_f32", 64)])
def test_clocks_of_an_instruction_are_those_of_amds_calculator(name: str, instruction: str,
                                                               clocks: int) -> None:
    """amd_matrix_instruction_calculator 1.3.2 prints them as execution cycles."""
    arch = datasheets.find_arch(name)
    assert arch is not None
    assert [row.clocks for row in arch.matrix if row.instruction == instruction] == [clocks]


def test_missing_tables_are_an_error_and_not_a_verdict_without_floors(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasheets, "HARDWARE", tmp_path)
    with pytest.raises(EnvironmentFault, match="hardware tables are missing"):
        datasheets._tables.__wrapped__()


def test_every_number_has_a_source() -> None:
    assert {arch.name for arch in datasheets.archs()} == {
        "gfx90a", "gfx942", "gfx950", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
    for arch in datasheets.archs():
        assert arch.source and arch.generation and bool(arch.matrix) == bool(arch.matrix_source)
        assert arch.shared_per_block <= arch.shared <= max(arch.near, arch.shared)
        assert any(card.arch == arch.name for card in datasheets.cards())

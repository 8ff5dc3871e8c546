"""What pages and tables say of instructions and registers is what Triton's assemblers and LLVM do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from engine.knowledge import page_library
from harness.devices import datasheets
from harness.devices.datasheets import Arch, MatrixRate
from tests.engine.knowledge import run_amd_compiler, run_assembler
from tests.support.programs import forked_program

BITS = {"fp64": 64, "tf32": 32, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}
PTX_TYPES = {  # of result and operands, of a register, of accumulators
    "bf16": ("f32", "bf16", "r", "f"), "fp16": ("f16", "f16", "r", "r"),
    "tf32": ("f32", "tf32", "r", "f"), "fp8": ("f32", "e4m3", "r", "f"),
    "int8": ("s32", "s8", "r", "r"), "fp64": ("f64", "f64", "e", "e")}
KINDS = {"bf16": "f16", "tf32": "tf32", "fp8": "f8f6f4", "int8": "i8"}
CUDA = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
CDNA = ("gfx90a", "gfx942", "gfx950")
WGMMA = "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.bf16.bf16 {{{d}}}, %d0, %d1, 1, 1, 1, 0, 0;"
FP8 = ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0,%f1,%f2,%f3}, "
       "{%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f4,%f5,%f6,%f7};")
TCGEN = "tcgen05.mma.cta_group::1.kind::{} [%r0], %d0, %d1, %r1, %p;"
BULK = ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%d0], %r0, "
        "[%m];")
SWAPPED = ("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
           "[%s], [%m];")


def wgmma(n: int, k: int = 16) -> str:
    return WGMMA.format(n=n, k=k, d=",".join(f"%f{at}" for at in range(n // 2)))


STATED = [  # page, instruction, the only ones of these architectures that have it
    ("hardware/sm_90", wgmma(8), ("sm_90", *CUDA), ("sm_90a",)),
    ("hardware/sm_90", wgmma(256), ("sm_90", *CUDA), ("sm_90a",)),
    ("ops/gemm", wgmma(8).replace("m64", "m16"), CUDA, ()),
    ("hardware/sm_90", wgmma(12), CUDA, ()), ("hardware/sm_90", wgmma(264), CUDA, ()),
    ("backend/cute-dsl", "setmaxnreg.inc.sync.aligned.u32 232;", ("sm_89", "sm_90", "sm_90a"),
     ("sm_90a",)),
    ("hardware/sm_89", FP8, ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120"),
     ("sm_89", "sm_90", "sm_120")),
    ("hardware/sm_100", TCGEN.format("f16"), ("sm_100", *CUDA), ("sm_100a",)),
    ("hardware/sm_100", TCGEN.format("i8"), ("sm_100a", "sm_100f", "sm_103a"), ("sm_100a",)),
    ("backend/cuda", "redux.sync.add.s32 %r0, %r1, %r2;", ("sm_75", *CUDA), CUDA),
    ("backend/cuda", BULK, ("sm_89", "sm_90", "sm_100", "sm_120"), ("sm_90", "sm_100", "sm_120")),
    ("skills/persistent-kernels", SWAPPED, ("sm_90", "sm_90a", "sm_100", "sm_120"),
     ("sm_100", "sm_120")),
    *(("skills/pipelining", f"cp.async.{cache}.shared.global [%s], [%d0], {size};",
       ("sm_75", "sm_80"), ("sm_80",) if works else ())
      for cache, size, works in (("ca", 4, True), ("ca", 8, True), ("ca", 16, True),
                                 ("ca", 32, False), ("cg", 8, False), ("cg", 16, True))),
    ("hardware/gfx90a", "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]", CDNA, CDNA),
    ("hardware/gfx90a", "v_cvt_pk_fp8_f32 v0, v1, v2", CDNA, ("gfx942", "gfx950")),
    ("hardware/gfx942", "v_mfma_f32_16x16x8_xf32 a[0:3], v[0:1], v[2:3], a[0:3]", CDNA,
     ("gfx942",)),
    ("hardware/gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3], v20, "
     "v21", CDNA, ("gfx950",)),
    ("skills/pipelining", "buffer_load_dword v0, s[0:3], 0 offen lds", CDNA, CDNA),
    ("skills/pipelining", "buffer_load_dwordx2 v0, s[0:3], 0 offen lds", CDNA, ()),
    ("skills/pipelining", "buffer_load_dwordx4 v0, s[0:3], 0 offen lds", CDNA, ("gfx950",)),
    ("backend/hip", "ds_bpermute_b32 v0, v1, v2", CDNA, CDNA),
    ("backend/hip", "v_add_f32_dpp v0, v1, v2 row_shr:15", CDNA, CDNA),
    ("backend/hip", "v_add_f32_dpp v0, v1, v2 row_shr:16", CDNA, ()),
    ("backend/hip", "global_atomic_add_f32 v0, v1, s[0:1]", CDNA, CDNA),
]


def assembled(words: Iterable[str], folder: Path) -> list[bool]:
    printed = forked_program.output(Path(run_assembler.__file__), *words, folder=folder,
                                    interpret=False)
    return [line == "1" for line in printed.split()]


@pytest.mark.parametrize(("page", "line", "asked", "having"), STATED)
def test_architectures_have_the_instructions_that_pages_say(
        page: str, line: str, asked: Sequence[str], having: Sequence[str], tmp_path: Path) -> None:
    assert page_library.load(None).find(page)
    accepted = assembled([f"{arch} | {line}" for arch in asked], tmp_path)
    assert [arch for arch, works in zip(asked, accepted, strict=True) if works] == list(having)


@pytest.mark.parametrize("arch", [arch for arch in datasheets.archs() if arch.matrix],
                         ids=lambda arch: arch.name)
def test_each_matrix_instruction_takes_operands_of_the_stated_shape(arch: Arch, tmp_path: Path,
                                                                    ) -> None:
    words = [word for row in arch.matrix for word in _uses(arch, row)]
    assert words and all(assembled(words, tmp_path)), words


@pytest.mark.parametrize("name", CDNA)
def test_registers_allow_as_many_waves_as_the_compiler_says(name: str, tmp_path: Path) -> None:
    arch, counts = datasheets.find_arch(name), (1, 64, 65, 72, 73, 80, 96, 128, 129, 168, 169, 256,
                                                257, 512)
    assert arch is not None
    printed = forked_program.output(Path(run_amd_compiler.__file__), name, *map(str, counts),
                                    folder=tmp_path, interpret=False)
    stated = [min(datasheets.resident_warps(arch, registers), arch.warps) // datasheets.PARTITIONS
              for registers in counts]
    assert list(map(int, printed.split())) == stated


def test_only_gfx942_and_newer_wait_after_a_reciprocal(tmp_path: Path) -> None:
    waits = [forked_program.output(Path(run_amd_compiler.__file__), name, "hazard",
                                   folder=tmp_path, interpret=False).split() for name in CDNA]
    assert waits == [[], ["s_nop", "0"], ["s_nop", "0"]]
    assert "gfx942 needs one" in page_library.load(None).find("backend/asm").text


def _uses(arch: Arch, row: MatrixRate) -> Iterator[str]:
    """Yield uses of a matrix instruction with registers for its shape, the smallest and largest."""
    sizes = re.fullmatch(r"m(\d+)n(?:(\d+)|\((\d+)\.\.(\d+)\))k(\d+)", row.shape)
    assert sizes is not None
    m, k = int(sizes[1]), int(sizes[5])
    bits = BITS[row.dtype]
    for n in sorted({int(text) for text in sizes.groups()[1:4] if text}):
        if row.instruction.startswith("v_mfma"):
            words = bits // 32 if bits > 32 else 1
            a, b = m * k * bits // 2048, n * k * bits // 2048
            c = m * n * words // 64
            yield (f"{arch.name} | {row.instruction} {_vector('a', 0, c)}, {_vector('v', 0, a)}, "
                   f"{_vector('v', 64, b)}, {_vector('a', 0, c)}")
        elif row.instruction == "tcgen05.mma":
            yield f"{arch.name}a | {TCGEN.format(KINDS[row.dtype])}"
        else:
            result, operand, register, total = PTX_TYPES[row.dtype]
            per = 64 if bits == 64 else 32
            if row.instruction == "mma.sync":
                c = m * n * (16 if result == "f16" else per) // (32 * per)
                a, b = m * k * bits // (32 * per), n * k * bits // (32 * per)
                yield (f"{arch.name} | mma.sync.aligned.{row.shape}.row.col.{result}.{operand}."
                       f"{operand}.{result} {_list(total, c)}, {_list(register, a)}, "
                       f"{_list(register, b)}, {_list(total, c)};")
            else:
                flags = {"bf16": ", 1, 1, 0, 0", "int8": ""}.get(row.dtype, ", 1, 1")
                yield (f"{arch.name}a | {row.instruction}.sync.aligned.m64n{n}k{k}.{result}."
                       f"{operand}.{operand} {_list(total, m * n // 128)}, %d0, %d1, 1{flags};")


def _vector(file: str, first: int, count: int) -> str:
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def _list(register: str, count: int) -> str:
    return "{" + ",".join(f"%{register}{at}" for at in range(count)) + "}"

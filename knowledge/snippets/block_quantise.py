import triton
import triton.language as tl


@triton.jit
def block_quantise(x, y, scales, columns, BLOCK: tl.constexpr):
    """Narrow a row's blocks of BLOCK values to int8; y times its block's scale is x again."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 0) / 127, 1e-30)  # zeros stay zeros
    narrow = tl.clamp(value / scale, -127.0, 127.0)
    narrow += tl.where(narrow < 0, -0.5, 0.5)  # the conversion to integers drops digits
    tl.store(y + row * columns + at, narrow.to(tl.int8), mask=at < columns)
    tl.store(scales + row * tl.num_programs(1) + block, scale)


# --- checks ---
KERNEL = block_quantise
SIGNATURE = {"x": "*bf16", "y": "*i8", "scales": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
CONSTANTS = {"BLOCK": 128}


def errors(torch):
    x = torch.randn(3, 100) * torch.tensor([[1e-3], [1.0], [0.0]])
    y, scales = torch.empty(3, 100, dtype=torch.int8), torch.empty(3, 2)
    block_quantise[(3, 2)](x, y, scales, 100, BLOCK=64)
    spread = scales.repeat_interleave(64, 1)[:, :100]
    yield ((y * spread - x).abs() / spread).max(), 0.5001

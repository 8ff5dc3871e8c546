import triton
import triton.language as tl


@triton.jit
def then(decay, value, later_decay, later_value):
    """Two steps of h = decay * h + value as one."""
    return decay * later_decay, later_decay * value + later_value


@triton.jit
def linear_scan(decays, values, states, steps, width, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """h = decay * h + value along the steps of each of `width` channels, DEPTH steps at a time."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)[None, :]
    base = tl.program_id(1).to(tl.int64) * steps * width + lane
    step = tl.arange(0, DEPTH)[:, None]
    carried = tl.zeros([1, LANES], tl.float32)
    for first in range(0, steps, DEPTH):
        at = base + (first + step) * width
        known = (first + step < steps) & (lane < width)
        decay = tl.load(decays + at, mask=known, other=1.0).to(tl.float32)
        value = tl.load(values + at, mask=known, other=0.0).to(tl.float32)
        product, own = tl.associative_scan((decay, value), 0, then)
        state = own + product * carried
        tl.store(states + at, state.to(states.dtype.element_ty), mask=known)
        carried = tl.sum(tl.where(step == DEPTH - 1, state, 0.0), 0)[None, :]


# --- checks ---
KERNEL = linear_scan
SIGNATURE = {"decays": "*bf16", "values": "*bf16", "states": "*bf16", "steps": "i32",
             "width": "i32", "DEPTH": "constexpr", "LANES": "constexpr"}
CONSTANTS = {"DEPTH": 64, "LANES": 32}


def errors(torch):
    decays, values = torch.rand(1, 13, 3), torch.randn(1, 13, 3)
    states, h = torch.empty(1, 13, 3), torch.zeros(1, 3, dtype=torch.float64)
    linear_scan[(1, 1)](decays, values, states, 13, 3, DEPTH=4, LANES=4)
    for step in range(13):
        h = decays[:, step].double() * h + values[:, step].double()
        yield (states[:, step] - h).abs().max(), 1e-5

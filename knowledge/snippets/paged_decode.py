import triton
import triton.language as tl


@triton.jit
def paged_decode(q, keys, values, pages, lengths, out, top, total, scale, pages_a_row, heads,
                 per_split, D: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr):
    """One split of a sequence, for all query heads of a key head; a second pass adds the splits."""
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    rows, d, token = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, PAGE)  # GROUP <= 16 rows used
    own = (sequence * heads + head) * GROUP + rows
    query = tl.load(q + own[:, None] * D + d[None, :], mask=rows[:, None] < GROUP, other=0.0)
    length = tl.load(lengths + sequence)
    best = tl.full([16], -1e30, tl.float32)
    weight = tl.zeros([16], tl.float32)
    mixed = tl.zeros([16, D], tl.float32)
    last = min((split + 1) * per_split, tl.cdiv(length, PAGE))
    for index in range(split * per_split, last):
        page = tl.load(pages + sequence * pages_a_row + index).to(tl.int64)
        at = ((page * PAGE + token[:, None]) * heads + head) * D + d[None, :]
        known = index * PAGE + token < length
        key = tl.load(keys + at, mask=known[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)
        score = tl.where(known[None, :], score, -1e30)
        new = tl.maximum(best, tl.max(score, 1))
        p = tl.exp2(score - new[:, None])
        keep = tl.exp2(best - new)
        weight = weight * keep + tl.sum(p, 1)
        value = tl.load(values + at, mask=known[:, None], other=0.0)
        mixed = tl.dot(p.to(value.dtype), value, mixed * keep[:, None])
        best = new
    place = own * splits + split
    tl.store(top + place, best, mask=rows < GROUP)
    tl.store(total + place, weight, mask=rows < GROUP)
    tl.store(out + place[:, None] * D + d[None, :], mixed, mask=rows[:, None] < GROUP)


# --- checks ---
KERNEL = paged_decode
SIGNATURE = {"q": "*bf16", "keys": "*bf16", "values": "*bf16", "pages": "*i32", "lengths": "*i32",
             "out": "*fp32", "top": "*fp32", "total": "*fp32", "scale": "fp32",
             "pages_a_row": "i32", "heads": "i32", "per_split": "i32", "D": "constexpr",
             "GROUP": "constexpr", "PAGE": "constexpr"}
CONSTANTS = {"D": 128, "GROUP": 8, "PAGE": 16}


def errors(torch):
    D, GROUP, PAGE, heads, splits = 32, 4, 16, 2, 3
    lengths = torch.tensor([70, 5], dtype=torch.int32)
    pages = torch.tensor([[6, 1, 3, 0, 5], [2, 0, 0, 0, 0]], dtype=torch.int32)
    q = torch.randn(2, heads, GROUP, D)
    keys, values = torch.randn(7, PAGE, heads, D), torch.randn(7, PAGE, heads, D)
    out = torch.empty(2, heads, GROUP, splits, D)
    top, total = torch.empty(2, heads, GROUP, splits), torch.empty(2, heads, GROUP, splits)
    paged_decode[(2, heads, splits)](q, keys, values, pages, lengths, out, top, total, D ** -0.5,
                                     5, heads, 2, D=D, GROUP=GROUP, PAGE=PAGE)
    share = torch.exp2(top - top.amax(-1, keepdim=True)).double()
    got = (out * share[..., None]).sum(-2) / (total * share).sum(-1)[..., None]
    for n, length in enumerate(lengths.tolist()):
        k, v = (own[pages[n].long()].reshape(-1, heads, D)[:length].double()
                for own in (keys, values))
        p = torch.softmax(torch.einsum("hgd,thd->hgt", q[n].double(), k) * D ** -0.5, -1)
        yield (got[n] - torch.einsum("hgt,thd->hgd", p, v)).abs().max(), 1e-5

"""Calls over the rows of one tensor become one kernel, for rows of any length."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.kernels.module_source import HEAD, INPUTS, rewrites
from tests.support.programs import forked_program

SLOW = pytest.mark.slow
LONG = {"ROWS_WHOLE = 16384": "ROWS_WHOLE = 4", "ROWS_BLOCK = 4096": "ROWS_BLOCK = 16",
        "ROWS_TILE = 2048": "ROWS_TILE = 8"}
"""Knobs with which a short row takes the way of long ones, in several steps."""
ROTARY = HEAD + """    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32)

    def forward(self, x, cos, sin):
        a, b = self.norm(x).chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
""" + INPUTS.format("torch.randn(3, 20, 4, 32), torch.randn(20, 1, 16), torch.randn(20, 1, 16)")
PICKED = HEAD + """    def forward(self, x, target):
        share = F.log_softmax(x * 2, dim=-1)
        own = share.gather(1, target[:, None]).squeeze(1)
        return (1 - own.exp()) ** 2.0 * own, F.log_softmax(x / 0.07, dim=-1).diagonal()
""" + INPUTS.format("torch.randn(140, 140), torch.randint(0, 140, (140,))")
CAST = HEAD + """    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48))

    def forward(self, x, residual):
        whole = x.to(torch.float32) + residual
        y = whole * torch.rsqrt(whole.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y, whole, y.abs().amax(-1), y.tanh().amin(-1)
""" + INPUTS.format("torch.randn(3, 50, 48).bfloat16(), torch.randn(3, 50, 48)")
GATED = HEAD + """    def __init__(self):
        super().__init__()
        self.bias, self.scale = nn.Parameter(torch.randn(80)), nn.Parameter(torch.randn(40))

    def forward(self, x, residual):
        gate, up = torch.split(x + self.bias, 40, dim=-1)
        y = F.gelu(gate, approximate="tanh") * up * self.scale
        return F.layer_norm(y + residual, y.shape[-1:]), y.tanh()
""" + INPUTS.format("torch.randn(150, 80), torch.randn(150, 40)")
CUT = HEAD + """    def forward(self, x):
        gate, up = (x + 1).chunk(2, dim=-1)
        return F.silu(gate) * up
""" + INPUTS.format("torch.randn(150, 80)")
ENTROPY = HEAD + """    def forward(self, x, penalty):
        x = (x - penalty) / 0.8
        p = torch.softmax(x, dim=-1)
        level = torch.logsumexp(x, -1)
        return p, -(p * torch.log_softmax(x, dim=-1)).sum(dim=-1), x.mean(-1, True).tanh(), level
""" + INPUTS.format("torch.randn(150, 90), torch.randn(150, 90)")
CHANNELS = HEAD + """    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(30).eval()
        nn.init.normal_(self.norm.running_mean)

    def forward(self, x, y):
        z = F.relu(self.norm(x) + y)
        return F.adaptive_avg_pool2d(z, 1).flatten(1), z
""" + INPUTS.format("torch.randn(5, 30, 7, 9), torch.randn(5, 30, 7, 9)")
LENGTHS = HEAD + """    def forward(self, x):
        length = torch.norm(x, p=2, dim=1, keepdim=True)
        y = F.normalize(x - x.mean(1, keepdim=True), dim=1) * length
        a, b = x.chunk(2, -1)
        return y, torch.cat((b * length, a - length), -1)
""" + INPUTS.format("torch.randn(129, 34)")
TURNED = HEAD + """    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)

    def forward(self, x, cos, sin):
        y = self.norm(x)
        a, b = y[..., : y.shape[-1] // 2], y[:, :, y.shape[-1] // 2 :]
        z = torch.cat((-b, a), dim=-1)
        return y * cos + z * sin, z.sum(-1)
""" + INPUTS.format("torch.randn(3, 50, 32), torch.randn(50, 32), torch.randn(50, 32)")
SPREAD = HEAD + """    def forward(self, x):
        most = torch.max(x, dim=-1, keepdim=True)[0]
        y = (x - most) / x.std(-1, keepdim=True)
        few = x.min(-1).values, x.var(-1, False), torch.var(x, 1, correction=2), x.max(1)[1]
        return y, *few, x.mean(-1), x.var(-1)
""" + INPUTS.format("torch.randn(150, 33)")

ODD = HEAD + """    def __init__(self):
        super().__init__()
        level = torch.arange(12.0)[:, None, None].expand(12, 12, 34)
        self.register_buffer("level", level, persistent=False)
        self.register_buffer("count", torch.ones(12, 12, 34))

    def forward(self, x, w):
        y = x.transpose(0, 1).contiguous().transpose(0, 1) * 2 + self.level
        z = torch.softmax(y, -1) + y.mean(-1, True)
        s, kept = (z * y).sum(-1), (z * y).amax(-1, keepdim=True)
        u, v = s * w + (kept * w).squeeze(-1) + s * w, z * self.count
        self.count.mul_(0.5)
        return v.tanh(), u, y.transpose(0, 1).view(-1), s.view(-1)[list(range(143, -1, -1))] * 2
""" + INPUTS.format("torch.randn(12, 12, 34), torch.randn(12, 1)")
EXTREME = HEAD + """    def forward(self, x):
        x = x * 1.0
        z, p, q = torch.logsumexp(x, -1), torch.softmax(x, -1), torch.log_softmax(x, -1)
        n, m = F.normalize(x, dim=-1), F.layer_norm(x.clamp(min=-1e30), (34,))
        p, q, n, m = p + 0.5, q / 100, n + 0.5, m + 0.5
        kinds = torch.stack((z.isnan(), z == float("inf"), z == float("-inf"), z < -1e38))
        return kinds, *(torch.nan_to_num(each, 7.0, 8.0, 9.0) for each in (p, q, n, m))
""" + INPUTS.format('''torch.cat((
        torch.tensor([[-3.4e38], [float("inf")], [float("-inf")], [-2e30]]).expand(4, 34),
        torch.diag(torch.tensor([float("nan"), float("inf"), 1e30, float("-inf")])) @ torch.ones(
            4, 1) * (torch.arange(34) == 3) + torch.randn(4, 34),
        torch.randn(140, 34)))''')


TURNED_ALONE = HEAD + """    def forward(self, x):
        y = x * 1.5
        first, second = y.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return torch.sigmoid(first) * second, y * 0.5 + turned
""" + INPUTS.format("torch.randn(130, 36)")


def forward(source: str) -> str:
    return source.partition("class ModelNew")[2]


@pytest.mark.parametrize(("text", "call"), [
    pytest.param(ROTARY, r"v8 = rows\(x\.contiguous\(\), .*mul, add, cat", id="rotary"),
    pytest.param(PICKED, r"v11, v8 = rows\(x\.contiguous\(\), v2\.contiguous\(\)\)", id="picked"),
    pytest.param(CAST, r"v11, v1, v7, v9 = rows\(", id="cast", marks=SLOW),
    pytest.param(GATED, r"v7, v6 = rows\(", id="gated", marks=SLOW),
    pytest.param(TURNED, r"v8, v7 = rows\(", id="turned", marks=SLOW),
    pytest.param(SPREAD, r"v\d+, v3, v4, v5, v6, v8 = rows\(", id="spread"),
    pytest.param(CUT, r"v3 = rows\(x\.contiguous\(\)\)  # add, chunk, silu, mul", id="cut"),
    pytest.param(TURNED_ALONE, r"v7, v5 = rows\(", id="turned alone"),
    pytest.param(ENTROPY, r"v9, v2, v3, v7 = rows\(", id="entropy", marks=SLOW),
    pytest.param(CHANNELS, r"v4, v2 = rows\(x", id="channels", marks=SLOW),
    pytest.param(ODD, r"v\d+ = rows\(", id="odd"),
    pytest.param(EXTREME, r" = rows\(x", id="extreme"),
    pytest.param(LENGTHS, r"v\d+, v4 = rows\(x", id="lengths", marks=SLOW)])
def test_kernel_of_rows_computes_what_the_calls_do(tmp_path: Path, text: str, call: str) -> None:
    found = rewrites(tmp_path, text).rewrites[0]
    assert found.name == "rows" and re.search(call, forward(found.source)), forward(found.source)
    folders = [tmp_path / "problem", tmp_path / "long"]
    for folder, knobs in zip(folders, ({}, LONG), strict=True):
        folder.mkdir(exist_ok=True)
        (folder / "base.py").write_text(text)
        source = re.sub(r"ROWS\d+_", "ROWS_", found.source)
        for knob, value in knobs.items():
            assert knob in source or ("rows_long_kernel" not in source and "TILE" not in knob)
            source = source.replace(knob, value)
        (folder / "candidate.py").write_text(source)
    printed = forked_program.output(Path(__file__).with_name("run_rewrites.py"),
                                    *map(str, folders), folder=tmp_path, interpret=True)
    assert max(json.loads(printed)) < 1e-6


@pytest.mark.parametrize(("body", "shape"), [
    pytest.param("return x.softmax(1) + x.sum(1)", "(140, 140)", id="rows broadcast as columns"),
    pytest.param("return x.softmax(1) * x.mean(1, True)", "(20, 80)", id="too few rows"),
    pytest.param("return x.sum(0) + x.mean(0)", "(140, 80)", id="not along rows"),
    pytest.param("y = x.softmax(1)\n        return y / y.flip(1).sum(1, True)", "(140, 80)",
                 id="through a call that has no lines"),
    pytest.param("return torch.softmax(x * 2, 1) + 1", "(140, 80)", id="a template does it")])
def test_rows_are_not_joined_where_it_is_wrong_or_saves_nothing(
        tmp_path: Path, body: str, shape: str) -> None:
    text = HEAD + f"    def forward(self, x):\n        {body}\n" + INPUTS.format(
        f"torch.randn{shape}")
    source = rewrites(tmp_path, text).rewrites[0].source
    joined = re.findall(r"= rows\d*\(.*", forward(source))
    assert not joined, forward(source)


def test_two_regions_with_the_same_lines_share_one_kernel(tmp_path: Path) -> None:
    text = HEAD + """    def forward(self, x, y):
        return [torch.softmax(each, 1) * each.mean(1, True) for each in (x, y)]
""" + INPUTS.format("torch.randn(140, 80), torch.randn(160, 80)")
    source = rewrites(tmp_path, text).rewrites[0].source
    assert source.count("def rows(") == 1 and "rows2" not in source
    assert len(re.findall(r"= rows\([xy]\.contiguous\(\)\)", forward(source))) == 2

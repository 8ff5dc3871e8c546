"""Modules become calls of templates that compute the same, or the reason against it is stated."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from engine.rewrites import equivalent_calls, template_catalog
from engine.rewrites.module_graph import TensorForm
from tests.support.kernels.module_source import HEAD, INPUTS, rewrites
from tests.support.programs import forked_program

SOFTMAX = HEAD + """    def forward(self, x):
        return torch.softmax(x * 2 + 1, dim=1)
""" + INPUTS.format("torch.randn(6, 40)")
LAYERS = HEAD + """    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16))
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x):
        y = F.relu(self.net(x), inplace=True)
        y += x[:, :1]
        return torch.tanh(y) * self.scale - y * torch.sigmoid(y)
""" + INPUTS.format("torch.randn(5, 12)")
PATTERN = HEAD + """    def forward(self, x):
        softmax = x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)
        return torch.where(softmax > 0, softmax, 3.0)
""" + INPUTS.format("torch.randn(4, 6, 5)")
ATTENTION = HEAD + """    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.tril(torch.ones(1, 1, 20, 20)))

    def forward(self, x, keys):
        q, k, v = x.transpose(1, 2).chunk(3, dim=-1)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / q.size(-1) ** 0.5)
        scores = scores.masked_fill(self.seen[:, :, :9, :9] == 0, float("-inf"))
        masked = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v
        scores = torch.matmul(q, k.transpose(2, 3)) / 4.0
        plain = torch.matmul(nn.Softmax(dim=3)(scores), v)
        many = keys[:, :, None, :, :].expand(2, 2, 2, 520, 16).reshape(2, 4, 520, 16)
        few = F.scaled_dot_product_attention(q[:, :, :3], many, many)
        one = k[:, None].expand(2, 1, 4, 9, 16).reshape(2, 4, 9, 16)
        few = few + F.scaled_dot_product_attention(q[:, :, :3], one, one)
        plain = plain + torch.softmax(self.seen[:, :, :9, :9] + q @ k.transpose(-1, -2), -1) @ v
        return torch.cat((masked, plain, few), dim=2)
""" + INPUTS.format("torch.randn(2, 9, 4, 48), torch.randn(2, 2, 520, 16)")
LONG_HEADS = HEAD + """    def forward(self, x):
        y = F.scaled_dot_product_attention(x + 1, x, torch.cat((x, x.tanh()), -1), scale=0.5)
        return y.cos() + x[:, :1, :1]
""" + INPUTS.format("torch.randn(3, 9, 12)")
CONVOLVED = HEAD + """    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 12, 3, padding="same")
        self.down = nn.Conv2d(12, 8, (3, 2), stride=2, bias=False)
        self.shift = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x):
        return F.leaky_relu(self.down(self.conv(x).relu()) + self.shift, 0.1) * 2
""" + INPUTS.format("torch.randn(2, 5, 9, 8)")
GROUPED = HEAD + """    def forward(self, x, w, ends):
        y = F.grouped_mm(x, w.transpose(1, 2), offs=ends)
        return y.float() * torch._grouped_mm(x, w.transpose(1, 2), ends).relu()
""" + INPUTS.format("torch.randn(6, 32).bfloat16(), torch.randn(2, 8, 32).bfloat16(), "
                    "torch.full((2,), 3, dtype=torch.int32).cumsum(0, dtype=torch.int32)")
QUANTISED = HEAD + """    def forward(self, x):
        groups = x.view(x.shape[0], -1, 8)
        scale = groups.abs().max(dim=-1, keepdim=True)[0].clamp_(min=1e-5) / 127
        narrow = (groups / scale).round().clamp(-128, 127).to(torch.int8)
        step = x.abs().max() / 448.0
        wide = (x / step).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float() * step
        columns = x.abs().amax(0, keepdim=True) / 127
        return narrow, scale.squeeze(-1), wide, torch.round(x / columns).to(torch.int8)
""" + INPUTS.format("torch.randn(5, 24)")
STEP = HEAD + """    def forward(self, q, k, v, g, beta, state):
        state = state * g.exp().unsqueeze(-1).unsqueeze(-1)
        change = (v - (state * k.unsqueeze(-1)).sum(dim=-2)) * beta.unsqueeze(-1)
        state = state + k.unsqueeze(-1) * change.unsqueeze(-2)
        return torch.cat((state, (state * q.unsqueeze(-1)).sum(dim=-2).unsqueeze(-2)), -2)
""" + INPUTS.format("*torch.rand(3, 4, 6), *torch.rand(2, 4), torch.rand(4, 6, 6)")
GRADIENTS = HEAD + """    def forward(self, x, dy, w):
        with torch.enable_grad():
            x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
            y = F.layer_norm(x, (12,), w)
            dx, dw = torch.autograd.grad(y, (x, w), dy)
            dz, = torch.autograd.grad(nn.Softmax(dim=1)(x), x, grad_outputs=dy)
        p = torch.softmax(dx, -1)
        return p * (dy - torch.sum(dy * p, dim=-1, keepdim=True)) + dz * dw
""" + INPUTS.format("torch.randn(5, 12), torch.randn(5, 12), torch.randn(12)")
TRAINED = HEAD + """    def forward(self, x, hidden):
        with torch.enable_grad():
            x = (x @ hidden).detach().requires_grad_()
            loss = F.cross_entropy(x, torch.arange(5), label_smoothing=0.1)
            dx, = torch.autograd.grad(loss, x)
            y = F.group_norm(x, 3)
            dz, = torch.autograd.grad(y, x, x)
        return loss.detach(), dx + dz
""" + INPUTS.format("torch.randn(5, 12), torch.randn(12, 24)")
EXPERTS = HEAD + """    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Sequential(
            nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)) for _ in range(3))
        self.up = nn.Parameter(torch.randn(2, 3, 16, 24))
        self.down = nn.Parameter(torch.randn(3, 24, 16))

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2, dim=-1)
        y = torch.zeros_like(x)
        hot = F.one_hot(chosen, num_classes=3).permute(2, 1, 0)
        for e in range(3):
            slot, token = torch.where(hot[e])
            rows = self.experts[e](x[None, token].reshape(-1, 16))
            y.index_add_(0, token, rows * weights[token, slot, None])
        z = torch.zeros_like(y)
        for e in range(3):
            token, slot = torch.where(chosen == e)
            rows = y[token]
            rows = (F.silu(rows @ self.up[0][e]) * (rows @ self.up[1][e])) @ self.down[e]
            z[token] += rows * weights[token, slot].unsqueeze(-1)
        share = lambda e: (weights * (chosen == e)).sum(-1, keepdim=True)
        return z, sum(share(e) * expert(y) for e, expert in enumerate(self.experts))
""" + INPUTS.format("torch.randn(9, 16)")
ROUTED = HEAD + """    def forward(self, x):
        weights = F.softmax(x, dim=1, dtype=torch.float)
        weights, first = torch.topk(weights, 2, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        scores, second = torch.topk(x, 3, dim=-1)
        some, third = x.float().sigmoid().topk(2, sorted=False)
        some = (some / (some.sum(-1, keepdim=True) + 1e-20)) * 2.5
        last = x[:, 3:].softmax(-1).topk(4)
        return weights.half(), first, scores.softmax(-1), second, some, third, *last
""" + INPUTS.format("torch.randn(5, 12)")


SLOW = pytest.mark.slow
NAMED = HEAD + """    def forward(self, x):
        return {"share": torch.softmax(x, 1), "sum": torch.relu(x).sum(1)}
""" + INPUTS.format("torch.rand(6, 40)")


@pytest.mark.parametrize(("text", "calls"), [
    pytest.param(SOFTMAX, ("softmax(x, 1)",), id="softmax", marks=SLOW),
    pytest.param(NAMED, ("return {'share': v0, 'sum': v2}", " = softmax(x, 1)"), id="named",
                 marks=SLOW),
    pytest.param(LAYERS, ("self.net[0](x)", "batch_norm("), id="layers"),
    pytest.param(PATTERN, ("norm(", "kind='rms'"), id="pattern", marks=SLOW),
    pytest.param(ATTENTION, ("attention(v1[0]", "mask=~v6, low=float('-inf'), scale=0.25",
                             "scale=1 / 4.0)", "mask=v26, scale=1.0", "attention_decode(",
                             ", keys, "),
                 id="attention", marks=SLOW),
    pytest.param(LONG_HEADS, ("torch.transpose(x, -2, -1)", "softmax(", "matmul(v"),
                 id="long heads", marks=SLOW),
    pytest.param(GRADIENTS, ("norm_backward(v0, dy, v1, ", "softmax_backward(v0, dy, 1, "),
                 id="gradients", marks=SLOW),
    pytest.param(TRAINED, ("v4, v3 = logits_gradient(v1, v2, None, 'mean', -100, 0.1)",
                           " = group_norm_backward(v1, v1, 3, None, 1e-05, of='x')"),
                 id="trained", marks=SLOW),
    pytest.param(STEP, ("v16, v13 = delta_step(q, k, v, g, beta, state)",), id="delta step",
                 marks=SLOW),
    pytest.param(QUANTISED, ("v8, v4 = quantise(v0, ", "dim=None", "reduce(x, 0, True"),
                 id="quantised"),
    pytest.param(ROUTED, ("(x, 2, dtype=torch.float16, share='sum', wide=True)",
                          "score='', share='softmax')", "share='sum', eps=1e-20, score='sigmoid')",
                          " = route(v"), id="routed", marks=SLOW),
    pytest.param(CONVOLVED, ("conv(x, self.conv.weight, self.conv.bias, (1, 1), 'same', (1, 1))",
                             " = conv2(self.shift.contiguous(), self.shift.shape[0], v1"),
                 id="convolved"),
    pytest.param(EXPERTS, ("'relu', ", "'silu', None"), id="experts")])
def test_rewrite_computes_what_its_module_does(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, calls: tuple[str, ...],
        ) -> None:
    monkeypatch.setattr(equivalent_calls, "LONGEST_HEAD", 8)
    monkeypatch.setattr(equivalent_calls, "LEAST_LENGTH", 8)
    found = rewrites(tmp_path, text)
    source = found.rewrites[1 if text == CONVOLVED else 0].source
    assert source.startswith(text.rstrip()), "the person's file stays as it is"
    forward = source.partition("class ModelNew")[2]
    assert all(call in forward for call in calls), forward
    (tmp_path / "problem" / "candidate.py").write_text(source)
    printed = forked_program.output(Path(__file__).with_name("run_rewrites.py"),
                                    str(tmp_path / "problem"), folder=tmp_path, interpret=True)
    assert max(json.loads(printed)) < 1e-5


def test_template_that_a_library_rivals_comes_after_rewrites_without_it(tmp_path: Path) -> None:
    found = rewrites(tmp_path, CONVOLVED)
    assert [each.name for each in found.rewrites] == ["templates", "rivals"]
    assert "= conv(" not in found.rewrites[0].source.partition("class ModelNew")[2]


def test_grouped_product_becomes_its_template_without_the_widening_cast(tmp_path: Path) -> None:
    forward = rewrites(tmp_path, GROUPED).rewrites[0].source.partition("class ModelNew")[2]
    assert re.findall(r"grouped_gemm2?\(x, .*", forward) == [
        "grouped_gemm(x, v0, ends)", "grouped_gemm2(x, v3, ends)  # grouped_mm, relu"], forward
    assert "v6 = v2.mul(v5)" in forward, "a lone elementwise call stays torch's"


def test_lone_elementwise_call_gets_a_kernel_only_if_nothing_else_does(tmp_path: Path) -> None:
    body = "        return torch.softmax(x.view(4, 12, 9).transpose(0, 1).relu(), -1).sum(0).tanh()"
    both, alone = (rewrites(tmp_path / name, f"{HEAD}    def forward(self, x):\n{text}\n"
                            + INPUTS.format("torch.randn(4, 12, 9)")).rewrites[0].source
                   for name, text in (("both", body), ("alone", "        return x.tanh()")))
    assert "tanh" in both.partition("class ModelNew")[2] and "pointwise" not in both
    assert "pointwise(" in alone.partition("class ModelNew")[2]


@pytest.mark.parametrize(("rows", "call"), [
    (16384, "gemm(x, self.up.weight.t(), self.up.bias)  # linear, gelu"), (16256, "self.up(x)")])
def test_large_float32_products_take_their_elementwise_calls(
        tmp_path: Path, rows: int, call: str) -> None:
    body = f"""    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 1024)

    def forward(self, x):
        return F.gelu(self.up(x))
{INPUTS.format(f"torch.randn({rows}, 128)")}"""
    assert call in rewrites(tmp_path, HEAD + body).rewrites[0].source.partition("class ModelNew")[2]


@pytest.mark.parametrize(("body", "why"), [
    ("x.fft = torch.fft.fft(x).real\n        return x.fft", "no template covers fft"),
    ("x += 1\n        return x", "writes into a tensor"),
    ("with torch.enable_grad():\n            x = x.detach().requires_grad_()\n"
     "            x.relu().sum().backward()\n        return torch.softmax(x.grad, 1)",
     "no template computes this gradient"),
    ("y = x.clone()\n        y[0] = 1\n        return y", "writes into a tensor: setitem"),
    ("return x * x[x > 0].sum()", "sizes depend on values"),
    ("return x.sum(1, dtype=torch.int32)", "the closest template, reduce, needs dtype in"),
    ("return x @ x.t()", "the closest template, gemm_fp32, needs min(other.shape[-1], "),
])
def test_without_a_match_the_reason_is_one_line(tmp_path: Path, body: str, why: str) -> None:
    text = HEAD + f"    def forward(self, x):\n        {body}\n" + INPUTS.format("torch.rand(4, 8)")
    found = rewrites(tmp_path, text)
    assert not found.rewrites
    assert why in found.nothing and "\n" not in found.nothing


def test_conditions_of_templates_call_known_functions_only() -> None:
    table = template_catalog.catalog()
    conditions = [each.when for template in table.templates for each in (
        *template.replaces, *template.forms)] + [form.when for form in table.expressions]
    called = {node.func.id for when in conditions if when for node in ast.walk(ast.parse(when))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert called <= template_catalog.FUNCTIONS.keys()
    form = TensorForm(dtype="float32", shape=(2, 3, 9, 9))
    depthwise = table.named("depthwise").replaces[0].when
    assert template_catalog.holds(depthwise, {
        "groups": 3, "input": form, "padding": (0, 0),
        "weight": TensorForm(dtype="float32", shape=(3, 1, 3, 3))})


@pytest.mark.slow
def test_a_rewritten_source_is_rewritten_from_the_persons_part(tmp_path: Path) -> None:
    found = rewrites(tmp_path, SOFTMAX)
    again = rewrites(tmp_path / "again", found.rewrites[0].source)
    assert again.rewrites[0].source == found.rewrites[0].source

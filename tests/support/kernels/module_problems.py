"""Files with a PyTorch `Model`, as owners write them."""

from __future__ import annotations

HEAD = "import torch\nimport torch.nn as nn\n\n"
NORM = HEAD + """
class Model(nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.bn = nn.BatchNorm1d(features)
        self.scale = scale

    def forward(self, x, power):
        return self.scale * self.bn(x) ** power

batch_size = 4096 * 2
features = 16384

def get_inputs():
    return [torch.rand(batch_size, features), 2]

def get_init_inputs():
    return [features, 0.5]
"""
MIXED = HEAD + """
class Model(nn.Module):
    def forward(self, pair, mask, labels, shift):
        left, right = pair
        both = (left + right).masked_fill(mask, 0.0)
        return {"sum": both, "best": both.argmax(1), "few": labels < 3, "none": None}

N = 64

def get_inputs():
    return [(torch.randn(N, 8), torch.randn(N, 8)), torch.rand(N, 8) > 0.5,
            torch.randint(0, 10, (N,)), None]

def get_init_inputs():
    return []
"""
DROPOUT = HEAD + """
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training) + 1

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""
CHOOSING = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        shares, chosen = torch.topk(x[:, :3], 1)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == number)
            y[token] += shares[token, slot, None] * expert(x[token])
        return y

def get_inputs():
    return [torch.rand(6, 8)]

def get_init_inputs():
    return []
"""
LOSS = HEAD + """
class Model(nn.Module):
    def forward(self, labels, found, logs, shares, signs, scores):
        picked = logs.gather(1, labels[:, None]) + logs.gather(1, found[:, None])
        return picked.mean() + nn.functional.kl_div(logs, shares) + (signs * scores.log()).mean()

rows = 2048
classes = 4096

def get_inputs():
    some = torch.randn(rows, classes)
    return [torch.randint(0, classes, (rows,)), torch.randn(rows, classes).argmax(1),
            some.log_softmax(-1), torch.rand(rows, classes).softmax(-1),
            torch.randint(0, 2, (rows,)).float() * 2 - 1, torch.rand(rows)]

def get_init_inputs():
    return []
"""


NUMBERS = "from __future__ import annotations\n\n" + HEAD + """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, q, k, v):
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

def get_inputs():
    return [torch.randn(4, 16, 2048, 128) for _ in range(3)]

def get_init_inputs():
    return [128]
"""


HALVES = HEAD + """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, dtype=torch.bfloat16)
        self.fixed = nn.BatchNorm1d(width, dtype=torch.bfloat16).eval()

    def forward(self, x):
        left, right = x.chunk(2, -1)
        return self.fixed(self.norm(left) * 16 - self.norm(right) * 16)

def get_inputs():
    return [torch.randn(8192, 8192, dtype=torch.bfloat16)]

def get_init_inputs():
    return [4096]
"""

"""Honest kernels in Python: equivalent ways to write an operation in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.exploits.problems import Problem
from tests.honest import case
from tests.honest.case import ASTERISK, Honest, problems
from tests.honest.variants.variant import Variant


def mix(id: str, title: str, body: str, before: str = "", **fields: Any) -> Variant:
    return Variant(id, Honest(title=title, source=problems.mix(body, before),
                              **({"problem": problems.MIX} | fields)))


def out(id: str, title: str, body: str, before: str = "", **fields: Any) -> Variant:
    return Variant(id, Honest(title=title, source=problems.mix_out(body, before),
                              problem=problems.MIX_OUT, **fields))


def blend(id: str, title: str, body: str) -> Variant:
    return Variant(id, Honest(title=title, source=problems.blend_python(body),
                              problem=problems.BLEND_PYTHON))


X, W = problems.MIX.target.args
WEIGHT = case.posed(problems.MIX, args=(X, replace(W, weight=True)))
TOP_WORK = "import torch\n\n\ndef mix(x, w):\n"
TOP: Problem = replace(
    problems.MIX, target=replace(problems.MIX.target, return_dtypes=("float32", "int64")),
    reference="import torch\ndef mix(x, w):\n    return tuple(torch.max(x @ w, dim=1))\n",
    incumbent=TOP_WORK + "    for _ in range(8):\n        y = torch.max(x @ w, dim=1)\n"
                         "    return y.values, y.indices\n",
    honest=TOP_WORK + "    return tuple(torch.max(x @ w, dim=1))\n")
VARIANTS = [
    out("out-argument", "torch's own out arguments", "torch.relu_(torch.mm(x, w, out=out))"),
    out("out-copied", "made elsewhere and copied", "out.copy_(torch.relu(x @ w))"),
    out("out-slices", "slices are assigned", """
half = x.shape[0] // 2
out[:half] = torch.relu(x[:half] @ w)
out[half:] = torch.relu(x[half:] @ w)
"""),
    out("out-accumulated", "halves of the inner dimension are added in the output", """
half = x.shape[1] // 2
torch.mm(x[:, :half], w[:half], out=out)
out.addmm_(x[:, half:], w[half:]).clamp_(min=0)
"""),
    out("out-zeroed", "the output is cleared first", "out.zero_().addmm_(x, w).relu_()"),
    out("out-workspace", "a workspace that is kept by shape and written anew", """
key = x.shape, w.shape
if key not in spaces:
    spaces[key] = torch.empty(x.shape[0], w.shape[1])
torch.mm(x, w, out=spaces[key])
torch.clamp(spaces[key], min=0, out=out)
""", "\nspaces = {}\n"),
    mix("workspace-copied", "a workspace that is kept, and a copy of it that is returned", """
key = x.shape, w.shape
if key not in spaces:
    spaces[key] = torch.empty(x.shape[0], w.shape[1])
torch.mm(x, w, out=spaces[key])
return spaces[key].clamp(min=0)
""", "\nspaces = {}\n"),
    mix("view-of-a-buffer", "a slice of a larger buffer of this call", """
wide = torch.empty(x.shape[0], w.shape[1] + 8)
y = wide[:, 4:-4]
y.copy_(x @ w)
return y.relu_()
"""),
    mix("strided-view", "a view with given strides", """
y = torch.relu(x @ w)
return y.as_strided(y.shape, y.stride())
"""),
    mix("transposed-view", "a transposed view, which its reader may have to copy",
        "return torch.relu(w.t() @ x.t()).t()", allowed={"aliased-output"}),
    mix("einsum", "torch.einsum", "return torch.einsum('nk,km->nm', x, w).relu()"),
    mix("linear", "a linear layer", "return torch.nn.functional.relu_("
                                    "torch.nn.functional.linear(x, w.t()))"),
    mix("chunks", "chunks of rows that are joined", """
return torch.cat([torch.relu(part @ w) for part in x.chunk(4)])
"""),
    mix("no-grad", "inference mode", """
with torch.inference_mode():
    return torch.relu(x @ w)
"""),
    mix("grad-off", "a decorated function without gradients", "return inner(x, w)", """

@torch.no_grad()
def inner(x, w):
    return torch.relu(x @ w)
"""),
    mix("module", "a module that is made once", "return layer(x, w)", """

class Layer(torch.nn.Module):
    def forward(self, x, w):
        return torch.relu(x @ w)


layer = Layer()
"""),
    mix("scripted", "a function that torch.jit.script has compiled", "return scripted(x, w)", """

@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.mm(x, w))
"""),
    mix("torch-compiled", "torch.compile lowers the function", "return lowered(x, w)", """

@torch.compile(dynamic=False)
def lowered(x, w):
    return torch.relu(x @ w)
"""),
    mix("constants", "a constant tensor that is kept by shape", """
if x.shape[1] not in ones:
    ones[x.shape[1]] = torch.eye(x.shape[1])
return torch.relu(x @ w) * ones[x.shape[1]].diagonal().max()
""", "\nones = {}\n"),
    mix("double-inside", "double precision inside", """
return torch.relu(x.double() @ w.double()).float()
"""),
    mix("joined-executor", "two threads, whose results are awaited", """
half = x.shape[0] // 2
parts = [pool.submit(torch.mm, part, w) for part in (x[:half], x[half:])]
return torch.cat([part.result() for part in parts]).relu_()
""", """
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(2)
""", allowed={"threads"}),
    mix("packed-weight", "a declared weight's layout is kept by its version", """
global kept
if kept is None or kept[0] is not w or kept[1] != w._version:
    kept = w, w._version, w.t().contiguous()
return torch.nn.functional.linear(x, kept[2]).relu_()
""", "\nkept = None\n", problem=WEIGHT, allowed=ASTERISK),
    mix("values-and-indices", "what torch.max returns, a tuple of its own type", """
return torch.max(x @ w, dim=1)
""", problem=TOP),
    mix("named-values", "the two values by name", """
top = torch.max(x @ w, dim=1)
return top.values, top.indices
""", problem=TOP),
    mix("pair", "two tensors", "y = (x @ w).relu_()\nreturn y, y.sum(dim=-1)",
        problem=problems.MIX_PAIR),
    mix("pair-of-views", "two views of one buffer", """
wide = torch.empty(x.shape[0], w.shape[1] + 1)
wide[:, :-1] = torch.relu(x @ w)
wide[:, -1] = wide[:, :-1].sum(1)
return wide[:, :-1], wide[:, -1]
""", problem=problems.MIX_PAIR),
    blend("in-place-lerp", "one operation in place", "m.lerp_(g, 0.1)"),
    blend("in-place-out", "the operand as an out argument",
          "torch.add(m * 0.9, g, alpha=0.1, out=m)"),
    blend("in-place-slices", "slices in place", """
for part, more in zip(m.chunk(3), g.chunk(3)):
    part.mul_(0.9).add_(more, alpha=0.1)
"""),
    blend("in-place-copied", "made elsewhere and copied back", "m.copy_(0.9 * m + 0.1 * g)"),
    blend("in-place-foreach", "operations on lists of tensors", """
torch._foreach_mul_([m], 0.9)
torch._foreach_add_([m], [g], alpha=0.1)
"""),
    blend("in-place-numpy", "numpy's view of the operand", """
view = m.numpy()
view *= 0.9
view += 0.1 * g.numpy()
"""),
]

import torch
import torch.nn.functional as F
from conv import causal_conv1d


def reference(x, weight, bias):
    out = F.conv1d(x, weight.unsqueeze(1), bias, padding=weight.shape[1] - 1, groups=x.shape[1])[..., :x.shape[2]]
    return F.silu(out)


def test():
    for batch, dim, seqlen in ((2, 2048, 4096), (8, 1536, 1024), (1, 5120, 2047)):
        x = torch.randn(batch, dim, seqlen, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(dim, 4, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(dim, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(causal_conv1d(x, w, b), reference(x, w, b), rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    test()
    print("ok")

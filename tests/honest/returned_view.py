"""Honest: what it returns is a view of something larger.

A padded buffer of this very call, of which the caller gets the part that it asked for.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
wide = torch.zeros(w.shape[1] + 3, x.shape[0], dtype=x.dtype)
torch.mm(w.t(), x.t(), out=wide[:w.shape[1]])
return wide.relu_()[:w.shape[1]].t()
""")
HONEST = Honest(title="what it returns is a view of something larger", source=SOURCE,
                problem=problems.MIX, like=(3, 31))

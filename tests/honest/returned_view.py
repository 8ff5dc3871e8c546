"""Honest: what it returns is a view of a fresh and larger buffer.

It is allocated by this very call, though often at an address where an older answer was.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
wide = torch.empty(w.shape[1] + 3, x.shape[0], dtype=x.dtype)
torch.mm(w.t(), x.t(), out=wide[:w.shape[1]])
return wide.relu_()[:w.shape[1]].t()
""")
HONEST = Honest(title="what it returns is a view of a fresh and larger buffer", source=SOURCE,
                problem=problems.MIX, like=(3, 19, 31))
